"""The dropout layers alone: units and whole attention heads."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.dropout import AttentionDropout, RepeatableDropout

pytestmark = pytest.mark.usefixtures("fixed_seed")

HEADS = 4


def _attention(batch):
    """Returns random attention weights `[batch, heads, 5, 6]`; none of them is 0."""
    logits = np.random.default_rng(0).normal(size=[batch, HEADS, 5, 6])
    return tf.nn.softmax(tf.constant(logits, tf.float32))


def _within(count, total, probability):
    """Returns whether a binomial count is within five standard deviations of its expectation."""
    deviation = math.sqrt(total * probability * (1 - probability))
    return abs(count - total * probability) <= 5 * deviation


@pytest.mark.parametrize(("rate", "heads_rate"), [(0.0, 0.2), (0.0, 0.7), (0.25, 0.5)])
def test_heads_are_dropped_whole_and_survivors_scaled(rate, heads_rate):
    """The others gain heads / survivors; single weights of these have a rate and scale as well."""
    weights = _attention(1000)
    dropped = AttentionDropout(rate, heads_rate, 0)(weights, training=True).numpy()
    kept = (dropped != 0).any(axis=(2, 3))
    assert _within((~kept).sum(), kept.size, heads_rate)
    inside = dropped[kept] != 0
    assert _within(inside.sum(), inside.size, 1 - rate)
    survivors = kept.sum(axis=1, keepdims=True)
    scale = kept * HEADS / np.maximum(survivors, 1) / (1 - rate)
    expected = np.where(dropped != 0, weights * scale[..., None, None], 0.0)
    np.testing.assert_allclose(dropped, expected, rtol=1e-5)
    for count in range(HEADS + 1):
        share = math.comb(HEADS, count) * (1 - heads_rate) ** count * heads_rate ** (HEADS - count)
        assert _within((survivors == count).sum(), 1000, share)


def test_in_half_precision(bfloat16):
    """Under bfloat16 the layers stay in it; heads are dropped whole and scaled to its digits."""
    weights = tf.cast(_attention(300), tf.bfloat16)
    layer = AttentionDropout(0.0, 0.4, 0)
    dropped = layer(weights, training=True)
    assert layer.compute_dtype == "bfloat16" and dropped.dtype == tf.bfloat16
    dropped = tf.cast(dropped, tf.float32).numpy()
    kept = (dropped != 0).all(axis=(2, 3))
    assert _within(kept.sum(), 300 * HEADS, 0.6)
    scale = kept * HEADS / np.maximum(kept.sum(axis=1, keepdims=True), 1)
    expected = tf.cast(weights, tf.float32) * scale[..., None, None]
    np.testing.assert_allclose(dropped, expected, rtol=2**-7)
    assert RepeatableDropout(0.4, 0)(weights, training=True).dtype == tf.bfloat16
