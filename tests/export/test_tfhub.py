"""The exported modules: TF-Hub's interface, the same numbers, and what travels inside."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from official.nlp.modeling import layers

from export.formats import tfhub
from export.formats.preprocessing import Preprocess
from export.formats.serving import Serving
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import read_source
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import POOLINGS
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.modeling.pooling import sentence_vector
from official_cmlm.modeling.sentence_encoder import (
    INPUT_NAMES,
    SentenceEncoderModel,
    encoder_variables,
)
from tests.conftest import tiny_encoder_config, two_replicas, write_encoder

TEXTS = ["The cat sat on the mat.", "", "dog", "a bird flew under the tree slowly and then"]


@pytest.fixture(scope="module")
def preprocess(exported):
    return hub.load(str(exported[1] / "preprocess"))


@pytest.fixture(scope="module")
def encoder(exported):
    return hub.KerasLayer(str(exported[1] / "encoder"), trainable=True)


def test_pair_equals_encode(exported, preprocess, encoder):
    """To 1e-5, in the documented shapes; `test_serving` compares the third module."""
    expected = SentenceEncoder.load(exported[0]).encode(TEXTS)
    inputs = preprocess(tf.constant(TEXTS))
    shapes = {name: (each.shape, each.dtype) for name, each in inputs.items()}
    assert shapes == dict.fromkeys(INPUT_NAMES, ((4, 24), tf.int32))
    outputs = encoder(inputs)
    assert outputs["default"].dtype == tf.float32
    np.testing.assert_allclose(outputs["default"], expected, atol=1e-5)
    np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])
    assert outputs["sequence_output"].shape == (4, 24, 16)
    assert [layer.shape for layer in outputs["encoder_outputs"]] == [(4, 24, 16)] * 2


def test_all_ways_pool_as_the_encoder_does(tmp_path, vocabulary, preprocess):
    """`embedding_last` reads two layers; `encode`, the exported pair and serving agree on it too.

    Serving puts a default prompt before each text. Not saved: that takes seconds, and is the same
    for all encoders.
    """
    config = tiny_encoder_config(vocab_size=len(vocabulary), pooling="embedding_last")
    model = SentenceEncoderModel(config)
    write_encoder(tmp_path / "model", vocabulary, model=model)
    inputs = preprocess(tf.constant(TEXTS))
    outputs = model(inputs)
    expected = outputs["default"].numpy()
    states = [outputs["sequence_output"]]
    last = sentence_vector(states, states[0][:, 0], inputs["input_mask"], POOLINGS["mean"])
    assert np.abs(last - expected).max() > 0.1
    encoded = SentenceEncoder.load(tmp_path / "model").encode(TEXTS)
    np.testing.assert_allclose(encoded, expected, atol=1e-5)
    module = tfhub.build_functional_encoder(model)
    np.testing.assert_allclose(module(inputs)["default"], expected, atol=1e-5)
    serving = Serving(Preprocess(vocabulary, 24, 48, {}, "a "), model)
    prompted = SentenceEncoder.load(tmp_path / "model").encode([f"a {text}" for text in TEXTS])
    np.testing.assert_allclose(serving.serve(tf.constant(TEXTS))["default"], prompted, atol=1e-5)


def test_exported_pooler_can_be_trained(preprocess, vocabulary):
    """Where the vector goes through BERT's pooler, fine-tuning the module trains that too."""
    config = tiny_encoder_config(vocab_size=len(vocabulary), pooling="cls_pooler")
    model, inputs = SentenceEncoderModel(config), preprocess(tf.constant(TEXTS))
    module = tfhub.build_functional_encoder(model)
    np.testing.assert_array_equal(module(inputs)["default"], model(inputs)["default"])
    assert len(module.trainable_variables) == 5 + 2 * 16 + 2


def test_preprocess_equals_model_garden(exported, preprocess, vocabulary, tmp_path):
    """Ids, packing and special tokens are those of Model Garden's own layers."""
    vocabulary.save(tmp_path)
    tokenizer = layers.BertTokenizer(vocab_file=str(tmp_path / "vocab.txt"), lower_case=True)
    tokens = tokenizer(tf.constant(TEXTS)).merge_dims(1, -1)
    assert preprocess.tokenize(tf.constant(TEXTS)).to_list() == tokens.to_list()
    special = {k: int(v) for k, v in preprocess.tokenize.get_special_tokens_dict().items()}
    assert special == {k: int(v) for k, v in tokenizer.get_special_tokens_dict().items()}
    packed = layers.BertPackInputs(seq_length=24, special_tokens_dict=special)(tokens)
    tf.nest.map_structure(np.testing.assert_array_equal, preprocess(tf.constant(TEXTS)), packed)


def _pair_classifier(modules):
    """Builds the functional model of TF-Hub's tutorials on pairs: two texts, two segments."""
    preprocess = hub.load(str(modules / "preprocess"))
    tokenize = hub.KerasLayer(preprocess.tokenize, name="tokenize")
    packing = hub.KerasLayer(preprocess.bert_pack_inputs, arguments={"seq_length": 20}, name="pack")
    texts = [tf_keras.Input([], dtype=tf.string, name=name) for name in ("premise", "hypothesis")]
    encoder = hub.KerasLayer(str(modules / "encoder"), trainable=True, name="encoder")
    outputs = encoder(packing([tokenize(text) for text in texts]))
    logits = tf_keras.layers.Dense(2, name="classifier")(outputs["default"])
    return tf_keras.Model(texts, logits)


@pytest.mark.long
def test_model_of_two_texts_is_trained_saved_and_loaded_again(exported, tmp_path):
    """A downstream model has all of it inside: strings in, and the first export need not be."""
    model = _pair_classifier(exported[1])
    model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    pairs = {"premise": tf.constant(TEXTS), "hypothesis": tf.constant(TEXTS[::-1])}
    before = model.predict(pairs, verbose=0)
    # Row i is the pair of row 3 - i the other way round: segments have an order.
    assert np.abs(before - before[::-1]).max() > 1e-3
    model.fit(pairs, tf.constant([0, 1, 0, 1]), verbose=0)
    after = model.predict(pairs, verbose=0)
    assert np.abs(after - before).max() > 1e-4
    model.save(str(tmp_path / "model"), include_optimizer=False)
    again = tf_keras.models.load_model(str(tmp_path / "model"), compile=False)
    np.testing.assert_allclose(again.predict(pairs, verbose=0), after, atol=1e-6)
    # It can be trained further, the encoder too; then also with the pooler, which nothing reads.
    names = {weight.name for weight in model.trainable_variables}
    assert len(names) > 30 and names <= {weight.name for weight in again.trainable_variables}


def test_dropout_and_fine_tuning(preprocess, encoder):
    """`training=True` turns dropout on; every weight but Model Garden's pooler gets a gradient."""
    inputs = preprocess(tf.constant(TEXTS))
    still = encoder(inputs, training=False)["default"]
    assert np.abs(encoder(inputs, training=True)["default"] - still).max() > 1e-3
    variables = encoder.trainable_variables
    assert len(variables) == 5 + 2 * 16
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(inputs, training=True)["default"] ** 2)
    gradients = tape.gradient(loss, variables)
    assert all(gradient is not None for gradient in gradients)


@pytest.mark.long
@pytest.mark.parametrize("trainable", [True, False])
def test_fits_under_mirrored_strategy(exported, preprocess, trainable):
    """An encoder inside the scope, on two logical devices: trained too, or left as it is."""
    strategy = two_replicas()
    with strategy.scope():
        inputs = {name: tf_keras.Input([24], dtype=tf.int32, name=name) for name in INPUT_NAMES}
        layer = hub.KerasLayer(str(exported[1] / "encoder"), trainable=trainable)
        dense = tf_keras.layers.Dense(1)
        model = tf_keras.Model(inputs, dense(layer(inputs)["default"]))
        model.compile("sgd", "mse")
    features = {k: v.numpy() for k, v in preprocess(tf.constant(TEXTS)).items()}
    assert bool(layer.trainable_variables) == trainable
    before = [weight.numpy() for weight in (layer.variables[0], dense.kernel)]
    model.fit(features, np.ones(4), batch_size=4, verbose=0)
    changed = [np.abs(w - b).max() > 0 for w, b in zip((layer.variables[0], dense.kernel), before)]
    assert changed == [trainable, True]


def test_loaded_module_can_be_saved_again(exported, tmp_path, preprocess):
    """load → save → load, with the first export gone, still gives the same numbers."""
    loaded = tf.saved_model.load(str(exported[1] / "preprocess"))
    tf.saved_model.save(loaded, str(tmp_path))
    again, expected = (
        module(tf.constant(TEXTS)) for module in (hub.load(str(tmp_path)), preprocess)
    )
    tf.nest.map_structure(np.testing.assert_array_equal, again, expected)
    assert (tmp_path / "assets" / "vocab.txt").exists()


@pytest.mark.parametrize("part", ["preprocess", "encoder"])
def test_assets_of_the_modules(exported, part, vocabulary):
    """Vocabulary, casing, pooling and training configuration."""
    loaded = tf.saved_model.load(str(exported[1] / part))
    assert bool(loaded.do_lower_case) is True
    text = tf.io.read_file(loaded.vocab_file.asset_path).numpy().decode()
    assert text.splitlines() == list(vocabulary.tokens)
    config = json.loads(tf.io.read_file(loaded.encoder_config.asset_path).numpy())
    assert config["encoder"]["pooling"] == "mean" and config["max_seq_length"] == 24
    assert tf.io.read_file(loaded.training_config.asset_path).numpy() == b"task: {}\n"


def test_modules_are_imported_as_the_same_encoder(exported, tmp_path):
    """Weights, vocabulary, prompts and settings; the same as the encoder directory's."""
    folder = shutil.copytree(exported[1] / "encoder", tmp_path / "encoder")
    described = json.loads((folder / "assets" / "encoder_config.json").read_text())
    described |= {"prompts": {"query": "ask "}, "default_prompt_name": "query"}
    (folder / "assets" / "encoder_config.json").write_text(json.dumps(described))
    source = read_source(str(folder), ImportOptions())
    assert source.encoding.default_prompt == "ask "
    assert source.notes == [] and source.for_sentences and source.max_seq_length == 24
    directory = EncoderDirectory.open(exported[0])
    assert source.config.as_dict() == directory.config.as_dict()
    assert source.vocabulary.hash == directory.vocabulary.hash
    for name, variable in encoder_variables(load_encoder(directory)).items():
        np.testing.assert_array_equal(source.encoder[name], variable, err_msg=name)


@pytest.mark.long
def test_static_encoder_is_imported_from_its_module(tmp_path):
    """The module names the weights of tokens and the dense layer without their layers."""
    shipped = find_encoder("static-en")
    tfhub.export(TfhubOptions(shipped, tmp_path))
    source = read_source(str(tmp_path / "encoder"), ImportOptions())
    for name, variable in encoder_variables(load_encoder(EncoderDirectory.open(shipped))).items():
        np.testing.assert_array_equal(source.encoder[name], variable, err_msg=name)


def test_refuses_to_overwrite_and_leaves_nothing_half_written(exported, tmp_path):
    model, out = exported
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    copied = shutil.copytree(out, tmp_path / "copied")
    (copied / "serving" / "1" / "notes").write_text("mine")
    foreign = "notes, which this program has not written"
    for folder, options, says in (
        (out, {}, "pass --overwrite"),
        (other, {"overwrite": True}, "holds no export"),
        (copied, {"overwrite": True}, f"copied: holds serving/1/{foreign}"),
        (copied, {"overwrite": True, "version": 1}, f"serving/1: holds {foreign}"),
        (tmp_path / "new", {"seq_length": 49}, "--seq_length must be 3 to 48"),
    ):
        with pytest.raises(UserError, match=says):
            tfhub.export(TfhubOptions(model, folder, **options))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copied", "other"]
