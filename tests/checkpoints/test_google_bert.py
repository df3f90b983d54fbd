"""Google's releases: TF1 and Model Garden checkpoints, TF-Hub modules, against Model Garden."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.legacy.bert import configs as legacy_configs
from official.nlp.modeling import models, networks
from official.nlp.tools import export_tfhub_lib

from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import read_source
from official_cmlm.checkpoints.weights import build
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES
from tests.checkpoints.helpers import (
    REFERENCES,
    assert_logits,
    assert_outputs,
    inputs,
    read_expected,
)
from tests.modeling.helpers import randomize

BERT_CONFIG = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.15,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
# Hugging Face's name -> TF1's, for writing the release's format from the reference's weights.
TF1_NAMES = (
    (".weight", ""),
    (".", "/"),
    ("encoder/layer/", "encoder/layer_"),
    ("cls/predictions/bias", "cls/predictions/output_bias"),
)


def _tf1_variables():
    """Returns the reference `bert_tanh` in the names and layouts of Google's TF1 release."""
    from safetensors.numpy import load_file

    for name, tensor in load_file(REFERENCES / "bert_tanh" / "model.safetensors").items():
        kernel = name.endswith(".weight") and tensor.ndim == 2 and "embeddings" not in name
        norm, weight = "LayerNorm" in name, name.endswith(".weight")
        for theirs, ours in TF1_NAMES:
            name = name.replace(theirs, ours)
        if norm:
            name = name.replace("/bias", "/beta") if not weight else name + "/gamma"
        yield name + "/kernel" if kernel else name, tensor.T if kernel else tensor
    rng = np.random.default_rng(0)
    yield "bert/pooler/dense/kernel", rng.normal(size=[16, 16]).astype(np.float32)
    yield "bert/pooler/dense/bias", rng.normal(size=[16]).astype(np.float32)


@pytest.fixture(scope="module")
def tf1_dir(tmp_path_factory):
    """Writes a folder like Google's: checkpoint with Adam's slots, bert_config.json, vocab.txt."""
    folder = tmp_path_factory.mktemp("tf1")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = []
        for name, tensor in _tf1_variables():
            variables.append(tf.compat.v1.get_variable(name, initializer=tensor))
            variables.append(tf.compat.v1.get_variable(f"{name}/adam_m", initializer=tensor * 0))
        logits = np.zeros([2, 16], np.float32)
        variables += [
            tf.compat.v1.get_variable("cls/seq_relationship/output_weights", initializer=logits),
            tf.compat.v1.get_variable("global_step", initializer=3),
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(
            session, str(folder / "bert_model.ckpt"), write_state=False
        )
    vocabulary = REFERENCES / "bert" / "vocab.txt"
    shutil.copy(vocabulary, folder)
    size = len(vocabulary.read_text().splitlines())
    (folder / "bert_config.json").write_text(json.dumps(BERT_CONFIG | {"vocab_size": size}))
    return folder


@pytest.fixture(scope="module")
def mg_encoder(tf1_dir):
    """Builds Model Garden's functional encoder with random weights."""
    config = legacy_configs.BertConfig.from_json_file(str(tf1_dir / "bert_config.json"))
    tf_keras.utils.set_random_seed(1)
    return randomize(export_tfhub_lib.get_bert_encoder(config))


def _like_model_garden(source, encoder):
    """Outputs of the imported encoder and of Model Garden's are equal."""
    arrays = read_expected("bert")
    arrays["sequence_output"] = encoder(inputs(arrays))["sequence_output"].numpy()
    assert_outputs(build(source)[0], arrays)


@pytest.mark.parametrize("name", ["", "bert_model.ckpt", "bert_model.ckpt.index"])
def test_tf1_release(tf1_dir, name):
    """Weights, approximate GELU, dropout and head; casing from the entries of the vocabulary."""
    source = read_source(str(tf1_dir / name), ImportOptions())
    assert_outputs(build(source)[0], read_expected("bert_tanh"))
    assert source.config.hidden_activation == "gelu"
    assert (source.config.dropout_rate, source.config.attention_dropout_rate) == (0.2, 0.15)
    assert source.vocabulary.lower_case is True
    assert_logits(*build(source), read_expected("bert_tanh"))


@pytest.mark.parametrize(
    "wrapper",
    ["pretrainer", *(pytest.param(name, marks=pytest.mark.long) for name in ("encoder", "model"))],
)
def test_model_garden_checkpoints(tf1_dir, mg_encoder, tmp_path, wrapper):
    """Whatever object the encoder was saved in; the pretrainer's head comes along."""
    shutil.copy(tf1_dir / "bert_config.json", tmp_path)
    shutil.copy(tf1_dir / "vocab.txt", tmp_path)
    items = {wrapper: mg_encoder}
    if wrapper == "pretrainer":
        pretrainer = models.BertPretrainerV2(encoder_network=mg_encoder)
        pretrainer(pretrainer.inputs)
        items = {"model": pretrainer, **pretrainer.checkpoint_items}
    tf.train.Checkpoint(**items).save(str(tmp_path / "ckpt"))
    source = read_source(str(tmp_path), ImportOptions())
    _like_model_garden(source, mg_encoder)
    assert (source.head is not None) == (wrapper == "pretrainer")


@pytest.mark.parametrize("width", [pytest.param(16, marks=pytest.mark.long), 8])
def test_model_garden_training_with_optimizer_slots(tf1_dir, tmp_path, width):
    """A model directory of Model Garden: `BertEncoderV2`, params.yaml, and Adam's moments.

    Its tables may be narrower than the encoder.
    """
    encoder = networks.BertEncoderV2(
        vocab_size=90, hidden_size=16, num_layers=1, num_attention_heads=4, inner_dim=24,
        inner_activation="relu", max_sequence_length=40, type_vocab_size=2, embedding_width=width,
    )  # fmt: skip
    features = inputs(read_expected("bert"))
    encoder(features)
    randomize(encoder)
    optimizer = tf_keras.optimizers.legacy.Adam()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(features)["pooled_output"])
    variables = encoder.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients([(g, v) for g, v in zip(gradients, variables) if g is not None])
    tf.train.Checkpoint(model=encoder, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    bert = {"hidden_activation": "relu", "dropout_rate": 0.3, "num_attention_heads": 4}
    params = {"task": {"model": {"encoder": {"type": "bert", "bert": bert}}}}
    (tmp_path / "params.yaml").write_text(json.dumps(params))
    (tmp_path / "vocab.txt").write_text((tf1_dir / "vocab.txt").read_text())
    source = read_source(str(tmp_path), ImportOptions())
    assert source.config.hidden_activation == "relu" and source.config.dropout_rate == 0.3
    _like_model_garden(source, encoder)


@pytest.mark.long
def test_the_activation_of_a_saved_model_is_found_out(tmp_path):
    """It says none, but only one gives its outputs; here the exact GELU of the reference."""
    encoder, module = build(read_source(str(REFERENCES / "bert"), ImportOptions()))[0], tf.Module()
    # Without the layers, whose calls Keras would all save.
    module.part = list(encoder.variables)
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}
    module.__call__ = tf.function(
        lambda inputs, training: {"sequence_output": encoder(inputs)["sequence_output"]},
        [spec, tf.TensorSpec([], tf.bool)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path))
    shutil.copy(REFERENCES / "bert" / "vocab.txt", tmp_path / "assets")
    source = read_source(str(tmp_path), ImportOptions())
    assert source.config.hidden_activation == "gelu_exact" and source.vocabulary.lower_case
    assert_outputs(build(source)[0], read_expected("bert"))


@pytest.mark.long
def test_tf_hub_module_of_model_garden(tf1_dir, mg_encoder, tmp_path):
    """A SavedModel carries vocabulary and casing, but no activation: that is found out."""
    tf.train.Checkpoint(encoder=mg_encoder).save(str(tmp_path / "ckpt"))
    export_tfhub_lib.export_model(
        str(tmp_path / "hub"),
        bert_config=legacy_configs.BertConfig.from_json_file(str(tf1_dir / "bert_config.json")),
        encoder_config=None,
        model_checkpoint_path=tf.train.latest_checkpoint(str(tmp_path)),
        with_mlm=False,
        vocab_file=str(tf1_dir / "vocab.txt"),
        do_lower_case=False,
    )
    source = read_source(str(tmp_path / "hub"), ImportOptions())
    assert source.config.hidden_activation == "gelu"
    assert source.vocabulary.lower_case is False
    _like_model_garden(source, mg_encoder)
