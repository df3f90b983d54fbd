"""NT-Xent at its edges; `objectives/test_contrastive.py` compares it with the reference."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.nt_xent import NEGATIVES, nt_xent

VARIANTS = list(itertools.product(NEGATIVES, [True, False]))


def _settings(negatives, positive_in_denominator=True, temperature=0.3):
    return {
        "negatives": negatives,
        "positive_in_denominator": positive_in_denominator,
        "temperature": temperature,
    }


@pytest.mark.parametrize("negatives", NEGATIVES)
def test_a_tie_is_not_a_hit(negatives):
    """Where all vectors are the same, nobody finds anything and each candidate is as likely."""
    same = np.tile(np.array([[0.0, 2.0]], np.float32), [4, 1])
    losses, hits = nt_xent(same, same, same, **_settings(negatives))
    np.testing.assert_array_equal(hits, [0.0] * 4)
    candidates = {"other_view": 4, "both_views": 7}[negatives]
    np.testing.assert_allclose(losses, [math.log(candidates)] * 4, rtol=1e-5)


@pytest.mark.parametrize(("negatives", "positive"), VARIANTS)
def test_batch_of_one_has_no_loss(negatives, positive):
    """Without negatives the loss is 0 and nothing is learned; no gradient is NaN."""
    anchor = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        losses, hits = nt_xent(anchor, anchor, [[2.0, -1.0]], **_settings(negatives, positive))
    np.testing.assert_allclose(losses, [0.0], atol=1e-6)
    np.testing.assert_array_equal(hits, [1.0])
    np.testing.assert_allclose(tape.gradient(losses, anchor), [[0.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize(("negatives", "positive"), VARIANTS)
def test_zero_vectors_have_finite_losses_and_gradients(negatives, positive):
    """A sentence vector of zeros does not make the whole step NaN, at a small temperature."""
    anchors = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        losses, _ = nt_xent(anchors, anchors, tf.eye(2, 3), **_settings(negatives, positive, 0.01))
    assert np.isfinite(losses).all()
    assert np.isfinite(tape.gradient(losses, anchors)).all()


def test_half_precision_vectors():
    views = [tf.cast(view, tf.bfloat16) for view in np.random.default_rng(2).normal(size=[2, 6, 5])]
    whole, settings = [tf.cast(view, tf.float32) for view in views], _settings("both_views")
    losses, _ = nt_xent(views[0], *views, **settings)
    assert losses.dtype == tf.float32
    np.testing.assert_array_equal(losses, nt_xent(whole[0], *whole, **settings)[0])
