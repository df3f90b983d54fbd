"""Every pooling against its definition, and which of them train BERT's pooler."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.encoder import POOLINGS
from official_cmlm.modeling.pooling import sentence_vector
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_tokens, oracle_encoder, pooling_of, randomize
from tests.oracles.bert_numpy import layer_norm

LENGTHS = [5, 1, 7, 3]


def _mean(rows):
    return sum(rows) / len(rows)


# Real tokens' outputs of the embedding layer, the first and the last block, and the pooler's output
# -> sentence vector.
EXPECTED = {
    "mean": lambda embedded, first, last, pooled: _mean(last),
    "max": lambda embedded, first, last, pooled: np.max(last, axis=0),
    "cls": lambda embedded, first, last, pooled: last[0],
    "cls_pooler": lambda embedded, first, last, pooled: pooled,
    "first_last": lambda embedded, first, last, pooled: (_mean(first) + _mean(last)) / 2,
    "embedding_last": lambda embedded, first, last, pooled: (_mean(embedded) + _mean(last)) / 2,
    # The mean is over the mask; `test_mean_padded` has the encoder with this pooling.
    "mean_padded": lambda embedded, first, last, pooled: _mean(last),
    # The mean is over weights; `test_a_token_counts_by_its_learned_weight` has the encoder.
    "weighted_mean": lambda embedded, first, last, pooled: _mean(last),
}
# Poolings of real tokens alone, without weights.
OF_REAL = [pooling for pooling in POOLINGS if pooling not in ("mean_padded", "weighted_mean")]


def _random(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def inputs():
    """Outputs of three layers with large values in the padding, the pooler's, and the mask."""
    mask = np.array([[i < length for i in range(7)] for length in LENGTHS], np.int32)
    layers = [_random(i, 4, 7, 6) - 2 + 100 * (1 - mask[..., None]) for i in range(3)]
    return [layer.astype(np.float32) for layer in layers], _random(9, 4, 6), mask


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_equals_the_definition(inputs, pooling, dtype):
    """From real tokens alone; half precision is widened before anything is added up."""
    layers, pooled, mask = inputs
    *layers, pooled = (tf.cast(x, dtype) for x in (*layers, pooled))
    vectors = sentence_vector(layers, pooled, mask, POOLINGS[pooling])
    assert vectors.dtype == tf.float32 and vectors.shape == [4, 6]
    *layers, pooled = (tf.cast(x, tf.float32).numpy() for x in (*layers, pooled))
    for row, length in enumerate(LENGTHS):
        embedded, first, last = (layers[i][row, :length] for i in (0, 1, -1))
        expected = EXPECTED[pooling](embedded, first, last, pooled[row])
        np.testing.assert_allclose(vectors[row], expected, rtol=1e-5, atol=1e-5)


def test_first_last_of_a_row_without_tokens():
    """The mean of nothing is 0, not NaN."""
    layer = tf.constant(_random(0, 2, 4, 6))
    mask = tf.zeros([2, 4], tf.int32)
    vectors = sentence_vector([layer] * 2, layer[:, 0], mask, POOLINGS["first_last"])
    np.testing.assert_array_equal(vectors, np.zeros([2, 6]))


@functools.cache
def _encoder(pooling):
    """Returns an encoder with this pooling, which no test changes."""
    return randomize(SentenceEncoderModel(tiny_encoder_config(num_layers=3, **pooling_of(pooling))))


@pytest.mark.parametrize("pooling", OF_REAL)
def test_encoder_pools_its_own_outputs(pooling):
    """`default` is the definition on tables and `encoder_outputs`, whatever the padding holds."""
    model, tokens = _encoder(pooling), make_tokens(LENGTHS, 9)
    outputs = model(tokens)
    layers = [layer.numpy() for layer in outputs["encoder_outputs"]]
    kernel, bias = (w.numpy() for w in model.bert.pooler_layer.weights)
    weights = oracle_encoder(model)
    words, places, types = (weights[f"{n}_embeddings"] for n in ("word", "position", "type"))
    norm = weights["embeddings_norm_gamma"], weights["embeddings_norm_beta"], 1e-12
    for row, length in enumerate(LENGTHS):
        ids = tokens["input_word_ids"][row, :length].numpy()
        embedded = layer_norm(words[ids] + places[:length] + types[0], *norm)
        first, last = (layers[i][row, :length] for i in (0, -1))
        pooled = np.tanh(last[0] @ kernel + bias)
        expected = EXPECTED[pooling](embedded, first, last, pooled)
        np.testing.assert_allclose(outputs["default"][row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [0, 2])
def test_a_token_counts_by_its_learned_weight(layers):
    """exp(w[id]) times in the mean, padding not at all; also where no block follows the tables."""
    config = tiny_encoder_config(num_layers=layers, pooling="weighted_mean")
    model, tokens = randomize(SentenceEncoderModel(config)), make_tokens(LENGTHS, 9)
    outputs = model(tokens)
    weights = np.exp(model.token_weights.weights[0].numpy()[:, 0])
    assert weights.std() > 0.1
    for row, length in enumerate(LENGTHS):
        counts = weights[tokens["input_word_ids"][row, :length].numpy()]
        states = outputs["sequence_output"][row, :length].numpy()
        expected = counts @ states / counts.sum()
        np.testing.assert_allclose(outputs["default"][row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls_pooler"])
def test_only_cls_pooler_trains_the_pooler(pooling):
    """The pooler is trained where the vector goes through it, and always there for checkpoints."""
    model, tokens = _encoder(pooling), make_tokens(LENGTHS, 9)
    pooler = {w.ref() for w in model.bert.pooler_layer.weights}
    trained = {w.ref() for w in model.trainable_variables}
    assert len(pooler) == 2 and len(model.weights) == 5 + 3 * 16 + 2
    assert trained == {w.ref() for w in model.weights} - (
        set() if pooling == "cls_pooler" else pooler
    )
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tokens, training=True)["default"] ** 2)
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        assert gradient is not None, variable.name
        if variable.ref() in pooler:
            assert np.abs(gradient).max() > 1e-3
