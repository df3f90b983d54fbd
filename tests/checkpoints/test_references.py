"""Imported encoders compute what the reference library computed with the same weights."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint, read_source
from official_cmlm.checkpoints.weights import build
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.modeling.cpu_forward import embed, inference_weights
from official_cmlm.modeling.relative_positions import buckets_of_distances
from tests.checkpoints.helpers import (
    REFERENCES,
    TEXTS,
    assert_logits,
    assert_outputs,
    inputs,
    read_expected,
)

SENTENCE_PIECE = ("xlm_roberta", "camembert", "multilingual_minilm")
WITHOUT_HEAD = ("minilm", "multilingual_minilm")
NAMES = ("bert", "bert_tanh", "minilm", "roberta", "distilbert", "mpnet", *SENTENCE_PIECE)


@pytest.fixture(scope="module")
def sources():
    return {name: read_source(str(REFERENCES / name), ImportOptions()) for name in NAMES}


@pytest.fixture(scope="module")
def built(sources):
    """Builds each encoder with its head once."""
    return functools.cache(lambda name: build(sources[name]))


@pytest.mark.parametrize("name", NAMES)
def test_token_outputs_to_1e_5(built, name):
    assert_outputs(built(name)[0], read_expected(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_HEAD])
def test_head_logits_to_1e_5(built, name):
    """The masked-language-model head comes along and is the source's."""
    assert_logits(*built(name), read_expected(name))


def test_a_model_without_head_or_with_drop_head_has_none(sources):
    assert sources["minilm"].head is None
    assert read_source(str(REFERENCES / "bert"), ImportOptions(drop_head=True)).head is None


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "mpnet", *SENTENCE_PIECE])
def test_text_in_ids_and_embedding_out(tmp_path, name):
    """From text on: the reference tokenizer's ids, then the mean over its real tokens."""
    import_checkpoint(str(REFERENCES / name), str(tmp_path / "out"), ImportOptions(), False)
    encoder, arrays = SentenceEncoder.load(tmp_path / "out"), read_expected(name)
    special = encoder.vocabulary.special_ids
    rows = encoder.vocabulary.tokenizer().tokenize(TEXTS).to_list()
    for ids, mask, row in zip(arrays["input_word_ids"], arrays["input_mask"], rows):
        assert ids[mask > 0].tolist() == [special["cls"], *row, special["sep"]]
    weights = arrays["input_mask"][:, :, np.newaxis]
    means = (arrays["sequence_output"] * weights).sum(1) / weights.sum(1)
    np.testing.assert_allclose(encoder.encode(TEXTS), means, atol=1e-5)


def test_settings_follow_the_source(sources):
    """Dropout, lengths, and the settings of vocabularies, which outputs do not show."""
    rates = {name: source.config.dropout_rate for name, source in sources.items()}
    assert rates == dict.fromkeys(NAMES, 0.1)
    assert {source.max_seq_length for source in sources.values()} == {40}
    assert sources["roberta"].config.max_seq_length == 40
    assert sources["bert"].vocabulary.settings() == {
        "lower_case": True,
        "max_bytes_per_word": 300,
        "normalization": "bert",
    }
    vocabulary = sources["multilingual_minilm"].vocabulary
    assert len(vocabulary) == sources["multilingual_minilm"].config.vocab_size
    assert len(vocabulary.without_padding()) == len(vocabulary) - 3


def test_distilbert_has_no_token_types_to_train(sources):
    """Its row of zeros is never trained, so that it stays what the source is."""
    model, _ = build(sources["distilbert"])
    assert not any("type_embeddings" in v.name for v in model.trainable_variables)
    assert any("type_embeddings" in v.name for v in build(sources["bert"])[0].trainable_variables)


def test_distances_are_in_the_references_buckets():
    """Also those that are farther than any text of the references is long."""
    theirs = read_expected("mpnet")["buckets"]
    ours = buckets_of_distances(32)
    assert len(ours) == 257 and len(theirs) == 601
    np.testing.assert_array_equal(ours[np.clip(np.arange(-300, 301), -128, 128) + 128], theirs)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_bias_by_distance_in_every_way_to_encode(tmp_path, sources, pooling):
    """At single positions, after padding and with dense inputs, in training and in `encode`."""
    config = sources["mpnet"].config.replace(pooling=pooling)
    model = build(dataclasses.replace(sources["mpnet"], config=config))[0]
    arrays = read_expected("mpnet")
    features = inputs(arrays)
    whole = model(features)
    np.testing.assert_allclose(
        model(features, vector_only=True)["default"], whole["default"], atol=1e-5
    )
    positions = tf.constant([[2, 0, 1]] * len(TEXTS))
    single = model(features | {"output_positions": positions})["sequence_output"]
    gathered = tf.gather(whole["sequence_output"], positions, batch_dims=1)
    np.testing.assert_allclose(single, gathered, atol=1e-5)
    lengths = tf.constant(arrays["input_mask"].sum(1), tf.int32)
    weights = inference_weights(model, "float32")
    embedded = embed(weights, config, None, features["input_word_ids"], lengths)
    np.testing.assert_allclose(embedded, whole["default"], atol=1e-5)
    dense = {"dense_inputs": tf.ones([len(TEXTS), 2, 16])}
    shorter = {name: tensor[:2, :16] for name, tensor in features.items()}
    longer = {name: tensor[:2] for name, tensor in features.items()}
    row = slice(0, 1)  # The first text is shorter than 16 tokens.
    with_dense = [
        model({k: v[row] for k, v in (part | dense).items()})["default"]
        for part in (shorter, longer)
    ]
    np.testing.assert_allclose(*with_dense, atol=1e-5)
    assert np.abs(with_dense[0] - whole["default"][row]).max() > 1e-3


def test_the_bias_is_trained(sources):
    model = build(sources["mpnet"])[0]
    table = model.bert.relative_bias.table
    assert any(variable is table for variable in model.trainable_variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs(read_expected("mpnet")), training=True)["default"] ** 2)
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.Tensor) and np.abs(gradient).max() > 0


def test_dense_inputs_have_the_last_rows_of_an_offset_table(sources):
    """CMLM on RoBERTa: 40 usable positions, so the last of two dense inputs has row 41."""
    model, arrays = build(sources["roberta"])[0], read_expected("roberta")
    features = inputs(arrays) | {"dense_inputs": tf.zeros([len(TEXTS), 2, 16])}
    table = next(v for v in model.weights if "position_embedding" in v.name)
    before = model(features)["default"].numpy()
    noise = np.random.default_rng(0).normal(size=table.shape).astype("float32")
    keep = np.zeros([42, 1], "float32")
    keep[40:] = 1.0
    table.assign_add(noise * keep)
    assert np.abs(model(features)["default"].numpy() - before).min() > 0
    table.assign_sub(noise * keep)
    keep[:] = 0.0
    keep[:2] = 1.0
    table.assign_add(noise * keep)
    np.testing.assert_allclose(model(features)["default"], before, atol=1e-5)


@pytest.mark.parametrize("pooling", ["max", "cls"])
def test_pooling_can_be_chosen(tmp_path, pooling):
    options = ImportOptions(pooling=pooling)
    import_checkpoint(str(REFERENCES / "bert"), str(tmp_path / "out"), options, False)
    sequence, mask = read_expected("bert")["sequence_output"], read_expected("bert")["input_mask"]
    pooled = sequence[:, 0]
    if pooling == "max":
        pooled = np.where(mask[:, :, np.newaxis] > 0, sequence, -np.inf).max(axis=1)
    np.testing.assert_allclose(
        SentenceEncoder.load(tmp_path / "out").encode(TEXTS), pooled, atol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "pooling", "dense_size"), [("labse", "cls_pooler", 0), ("distiluse", "mean", 8)]
)
def test_a_dense_module_is_read(tmp_path, name, pooling, dense_size):
    """LaBSE's is what BERT calls a pooler; any other is a layer of its own."""
    source = import_checkpoint(str(REFERENCES / name), str(tmp_path / "out"))
    config = source.config
    assert (config.pooling, config.dense_size, config.normalize) == (pooling, dense_size, True)
    assert bool(source.notes) == (name == "labse")
    encoder = SentenceEncoder.load(tmp_path / "out", backend="tensorflow")
    embeddings = read_expected(name)["embeddings"]
    assert encoder.dimension == embeddings.shape[1] == config.embedding_size
    np.testing.assert_allclose(encoder.encode(TEXTS), embeddings, atol=1e-5)
    got = encoder.model(encoder.inputs(TEXTS))["default"]
    np.testing.assert_allclose(got, embeddings, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"relative_position_buckets": 6}, "must be a multiple of 4"),
        ({"remat": "blocks"}, "remat must be none with encoder.relative_position_buckets"),
        ({"dense_size": 8, "num_projections": 2, "sentence_vector": "projected_mean"}, "exclude"),
    ],
)
def test_contradicting_settings_are_refused(sources, fields, says):
    with pytest.raises(UserError, match=says):
        sources["mpnet"].config.replace(**fields).check()
