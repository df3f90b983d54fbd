"""The dropout layers alone: units and whole attention heads."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.modeling.dropout import AttentionDropout, DropoutMode, RepeatableDropout

pytestmark = pytest.mark.usefixtures("fixed_seed")

HEADS = 4


def _attention(batch, queries=5, keys=6):
    """Returns random attention weights `[batch, heads, queries, keys]`; none of them is 0."""
    logits = np.random.default_rng(0).normal(size=[batch, HEADS, queries, keys])
    return tf.nn.softmax(tf.constant(logits, tf.float32))


def _of_views(layer, inputs, views, training=True):
    """Returns a layer's outputs for a batch of `views` that share their masks."""
    with DropoutMode(views, shared=True).active():
        return layer(inputs, training=training)


def _within(count, total, probability):
    """Returns whether a binomial count is within five standard deviations of its expectation."""
    deviation = math.sqrt(total * probability * (1 - probability))
    return abs(count - total * probability) < 5 * deviation


def _kept_heads(dropped):
    """Returns bool `[batch, heads]`, after checking that each head has every weight or none."""
    there = np.asarray(dropped) != 0
    kept = there.any(axis=(2, 3))
    np.testing.assert_array_equal(there, np.broadcast_to(kept[..., None, None], there.shape))
    return kept


@pytest.mark.parametrize("rate", [0.2, 0.7])
def test_heads_are_dropped_whole_and_survivors_scaled(rate):
    """A head loses all weights or none, at the rate; the others gain heads / survivors."""
    weights = _attention(1000)
    dropped = AttentionDropout(0.0, rate, 0)(weights, training=True)
    kept = _kept_heads(dropped)
    assert _within((~kept).sum(), kept.size, rate)
    survivors = kept.sum(axis=1, keepdims=True)
    scale = kept * HEADS / np.maximum(survivors, 1)
    np.testing.assert_allclose(dropped, weights * scale[..., None, None], rtol=1e-6)
    for count in range(HEADS + 1):
        expected = math.comb(HEADS, count) * (1 - rate) ** count * rate ** (HEADS - count)
        assert _within((survivors == count).sum(), 1000, expected)


def test_context_equals_that_of_zeroed_heads():
    """Inside Keras' attention, dropping weights of heads is zeroing and scaling their contexts."""
    layer = tf_keras.layers.MultiHeadAttention(HEADS, 3, output_shape=8)
    x = tf.constant(np.random.default_rng(2).normal(size=[60, 5, 8]), tf.float32)
    layer(x, x)
    layer._output_dense.bias.assign(tf.range(8.0))
    seen = []

    class Spy(AttentionDropout):
        def call(self, inputs, training=None):
            outputs = super().call(inputs, training=training)
            seen.append((inputs.numpy(), outputs.numpy()))
            return outputs

    layer._dropout_layer = Spy(0.0, 0.5, 0)
    got = layer(x, x, training=True).numpy()
    ((weights, dropped),) = seen
    kept = _kept_heads(dropped)
    value = np.einsum("btf,fhd->bthd", x, layer._value_dense.kernel)
    contexts = np.einsum("bhqk,bkhd->bqhd", weights, value)
    for row in range(60):
        survivors = kept[row].sum()
        for head in range(HEADS):
            contexts[row, :, head] *= HEADS / survivors if kept[row, head] else 0.0
    expected = np.einsum("bqhd,hdo->bqo", contexts, layer._output_dense.kernel) + np.arange(8.0)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    empty = ~kept.any(axis=1)
    assert empty.any()
    np.testing.assert_array_equal(got[empty], np.broadcast_to(np.arange(8.0), [empty.sum(), 5, 8]))


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize(
    ("rates", "training"),
    [((0.5, 0.5), False), ((0.5, 0.5), None), ((0.0, 0.0), True)],
)
def test_nothing_happens_outside_training_or_at_rate_0(views, rates, training):
    """The outputs are exactly the inputs."""
    weights = _attention(4)
    for layer in (AttentionDropout(*rates, 0), RepeatableDropout(rates[0], 0)):
        dropped = _of_views(layer, weights, views, training)
        np.testing.assert_array_equal(dropped, weights)


def test_weights_and_heads_together():
    """Single weights of the heads that stay are dropped at their own rate and scaled as well."""
    weights = _attention(1000)
    dropped = AttentionDropout(0.25, 0.5, 0)(weights, training=True).numpy()
    kept = (dropped != 0).any(axis=(2, 3))
    assert _within(kept.sum(), kept.size, 0.5)
    inside = dropped[kept] != 0
    assert _within(inside.sum(), inside.size, 0.75)
    scale = (kept * HEADS / np.maximum(kept.sum(axis=1, keepdims=True), 1))[..., None, None]
    expected = np.where(dropped != 0, weights * scale / 0.75, 0.0)
    np.testing.assert_allclose(dropped, expected, rtol=1e-5)


@pytest.mark.parametrize("views", [1, 2])
def test_in_half_precision(bfloat16, views):
    """Under bfloat16 the layers stay in it; heads are dropped whole and scaled to its digits."""
    weights = tf.cast(_attention(300), tf.bfloat16)
    layer = AttentionDropout(0.0, 0.4, 0)
    dropped = _of_views(layer, weights, views)
    assert layer.compute_dtype == "bfloat16" and dropped.dtype == tf.bfloat16
    dropped = tf.cast(dropped, tf.float32)
    kept = _kept_heads(dropped)
    assert _within(kept[: 300 // views].sum(), 300 // views * HEADS, 0.6)
    scale = kept * HEADS / np.maximum(kept.sum(axis=1, keepdims=True), 1)
    expected = tf.cast(weights, tf.float32) * scale[..., None, None]
    np.testing.assert_allclose(dropped, expected, rtol=2**-7)
    assert _of_views(RepeatableDropout(0.4, 0), weights, views).dtype == tf.bfloat16
