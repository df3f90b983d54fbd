"""`SentenceEncoderModel` against the reference that was written from the papers."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.pooling import pool
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import (
    NUM_HEADS,
    make_tokens,
    oracle_encoder,
    oracle_projection,
    randomize,
)
from tests.oracles import cmlm_numpy as oracle

ACTIVATIONS = {
    "gelu": oracle.gelu_tanh,
    "gelu_exact": oracle.gelu_erf,
    "relu": oracle.relu,
}


def _encoder(**overrides):
    return randomize(SentenceEncoderModel(tiny_encoder_config(**overrides)))


@pytest.fixture(scope="module")
def encoders():
    return {name: _encoder(hidden_activation=name) for name in ACTIVATIONS}


@pytest.fixture(scope="module")
def tokens():
    return make_tokens([6, 1, 9], 9, types=True)


def _reference(model, tokens, activation):
    """Outputs of every layer, `[layers][batch]`."""
    weights = oracle_encoder(model)
    rows = [
        oracle.bert_encode(weights, *row, num_heads=NUM_HEADS, activation=ACTIVATIONS[activation])
        for row in zip(*(tokens[f"input_{n}"].numpy() for n in ("word_ids", "mask", "type_ids")))
    ]
    return list(zip(*rows))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_layer_equals_the_reference(encoders, tokens, activation):
    """Real tokens have the reference's outputs in every layer, whatever the padding holds."""
    model = encoders[activation]
    outputs = model(tokens)
    reference = _reference(model, tokens, activation)
    assert len(outputs["encoder_outputs"]) == len(reference) == 2
    real = tokens["input_mask"].numpy() > 0
    for got, expected in zip(outputs["encoder_outputs"], reference):
        np.testing.assert_allclose(got.numpy()[real], np.stack(expected)[real], 1e-4, 1e-5)
    last = outputs["encoder_outputs"][-1]
    np.testing.assert_array_equal(outputs["sequence_output"], last)


def test_activations_differ(encoders, tokens):
    """The tests above can tell the activations apart, even the two GELUs."""
    default = {name: model(tokens)["default"].numpy() for name, model in encoders.items()}
    for name in ("gelu_exact", "relu"):
        assert np.abs(default[name] - default["gelu"]).max() > 2e-4


@pytest.mark.parametrize("width", [6, 24])
def test_tables_of_another_width_equal_the_reference(tokens, width):
    """As ALBERT's: normalised at their width, then a linear layer to the encoder's."""
    model = _encoder(embedding_width=width)
    outputs, reference = model(tokens), _reference(model, tokens, "gelu")
    real = tokens["input_mask"].numpy() > 0
    for got, expected in zip(outputs["encoder_outputs"], reference, strict=True):
        np.testing.assert_allclose(got.numpy()[real], np.stack(expected)[real], 1e-4, 1e-5)
    table = model.bert.get_embedding_table()
    assert table.shape[1] == width and model.config.embedding_size == 16
    trained = [v.name for v in model.trainable_variables if "embedding_projection" in v.name]
    assert len(trained) == 2


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_embedding_is_the_pooled_last_layer(tokens, pooling):
    """`default` is the reference's pooling of its last layer, float32 and not normalised."""
    model = _encoder(pooling=pooling)
    outputs = model(tokens)
    last = _reference(model, tokens, "gelu")[-1]
    masks = tokens["input_mask"].numpy()
    expected = [oracle.POOLING[pooling](row, mask) for row, mask in zip(last, masks)]
    assert outputs["default"].dtype == tf.float32
    for name in ("default", "pooled_output", "vector"):
        np.testing.assert_allclose(outputs[name], expected, 1e-4, 1e-5)


def test_projected_mean_is_the_mean_of_the_projections(tokens):
    """`default` is the mean over all N projections, the identity included; `vector` stays v."""
    model = _encoder(sentence_vector="projected_mean", num_projections=4)
    outputs = model(tokens)
    networks = oracle_projection(model.projection)
    last = _reference(model, tokens, "gelu")[-1]
    vectors = [oracle.mean_pool(*row) for row in zip(last, tokens["input_mask"].numpy())]
    expected = [oracle.project(vector, networks).mean(axis=0) for vector in vectors]
    np.testing.assert_allclose(outputs["default"], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(outputs["vector"], vectors, 1e-4, 1e-5)
    assert outputs["default"].dtype == tf.float32


def test_pooling_of_a_row_without_tokens():
    """The mean of nothing is 0, not NaN."""
    outputs = tf.ones([2, 3, 4])
    pooled = pool(outputs, tf.constant([[0, 0, 0], [1, 0, 0]]), "mean")
    np.testing.assert_array_equal(pooled, [[0.0] * 4, [1.0] * 4])


def test_max_pooling_of_negative_outputs():
    """Padding is not a 0 among the outputs that the maximum is taken of."""
    outputs = tf.constant([[[-3.0], [-2.0], [5.0]]])
    np.testing.assert_array_equal(pool(outputs, tf.constant([[1, 1, 0]]), "max"), [[-2.0]])


def test_unknown_pooling_is_an_error():
    """A pooling that does not exist is never replaced by another one."""
    with pytest.raises(ValueError, match="sum"):
        pool(tf.ones([1, 1, 1]), tf.ones([1, 1], tf.int32), "sum")


def test_dropout_only_in_training():
    """Dropout acts in training and never otherwise."""
    model = _encoder(dropout_rate=0.5, attention_dropout_rate=0.5)
    tokens = make_tokens([6, 4], 8)
    quiet = model(tokens)["default"].numpy()
    np.testing.assert_array_equal(quiet, model(tokens, training=False)["default"])
    assert np.abs(quiet - model(tokens, training=True)["default"].numpy()).max() > 1e-2


def test_pooler_is_kept_but_not_trained(encoders):
    """Public checkpoints find their pooler; no optimizer does."""
    model = encoders["gelu"]
    pooler = {w.ref() for w in model.weights if "pooler_transform" in w.name}
    trained = {w.ref() for w in model.trainable_variables}
    assert len(pooler) == 2
    assert not pooler & trained
    assert {w.ref() for w in model.weights} - pooler == trained
