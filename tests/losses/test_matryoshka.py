"""The gradient of whole vectors and of their first components; the loss is in `objectives`."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from official_cmlm.losses.blocks import sum_at_once, sum_in_blocks
from official_cmlm.losses.matryoshka import with_shorter_vectors
from official_cmlm.losses.nt_xent import nt_xent

# 7 vectors of 6 components, and others like them, but not so like that each finds its own.
FIRST, NOISE = np.random.default_rng(0).normal(size=[2, 7, 6]).astype(np.float32)
SECOND = FIRST + 1.5 * NOISE
WEIGHTS = {2: 0.5, 3: 2.0}


def _nt_xent(part, start, own, other):
    return nt_xent(part, own, other, start, temperature=0.2, negatives="other_view")


def _margin(part, start, other):
    return additive_margin_softmax(part, other, start, margin=0.3, logit_scale=7.0, normalize=False)


def _blocks(losses, anchors, others):
    return sum_in_blocks(losses, anchors, others, block=14)


# Inner products are not normalised at any size.
CASES = {"nt_xent": (_nt_xent, (FIRST, SECOND)), "margin": (_margin, (SECOND,))}


@pytest.mark.parametrize(("compiled", "weights"), [(False, WEIGHTS), (True, {**WEIGHTS, 6: 0.25})])
@pytest.mark.parametrize("case", CASES)
def test_gradient_is_the_sum_over_sizes(case, compiled, weights):
    """Each compared vector: its last components get the gradient of whole vectors alone."""
    losses, others = CASES[case]
    summed = sum_at_once if compiled else _blocks

    def gradients(anchors, *others):
        with tf.GradientTape() as tape:
            tape.watch([anchors, *others])
            total, _ = with_shorter_vectors(summed, weights)(losses, anchors, others)
        return tape.gradient(total, [anchors, *others], unconnected_gradients="zero")

    if compiled:
        gradients = tf.function(gradients, jit_compile=True)
    actual = gradients(tf.constant(FIRST), *map(tf.constant, others))
    expected = [np.zeros_like(FIRST) for _ in actual]
    for size, weight in {6: 1.0, **weights}.items():
        parts = [tf.constant(v[:, :size]) for v in (FIRST, *others)]
        with tf.GradientTape() as tape:
            tape.watch(parts)
            total = tf.reduce_sum(losses(parts[0], 0, *parts[1:])[0])
        for sums, part in zip(expected, tape.gradient(total, parts, unconnected_gradients="zero")):
            sums[:, :size] += weight * part
    for got, value in zip(actual, expected):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)


def test_gradients_of_half_precision_are_summed_in_float32():
    """Rounded once, at the end, as if there were one size."""
    anchors = tf.cast(FIRST, tf.bfloat16)
    others = (tf.cast(SECOND, tf.bfloat16),)

    def gradient(anchors, others):
        with tf.GradientTape() as tape:
            tape.watch(anchors)
            total, _ = with_shorter_vectors(_blocks, WEIGHTS)(_margin, anchors, others)
        assert total.dtype == tf.float32
        return tape.gradient(total, anchors)

    exact = gradient(tf.cast(anchors, tf.float32), (tf.cast(others[0], tf.float32),))
    np.testing.assert_array_equal(gradient(anchors, others), tf.cast(exact, tf.bfloat16))
