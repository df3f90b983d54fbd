"""In-batch retrieval against the reference."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from tests.oracles import cmlm_numpy as oracle


def _vectors(rows=6):
    """Pairs that are alike, but not so alike that each finds the other."""
    rng = np.random.default_rng(2)
    first = rng.normal(size=[rows, 5])
    return first.astype(np.float32), (first + rng.normal(size=[rows, 5])).astype(np.float32)


@pytest.mark.parametrize(
    ("margin", "scale", "normalize"), itertools.product([0.0, 0.3], [1.0, 20.0], [True, False])
)
def test_loss_equals_the_reference(margin, scale, normalize):
    """Both directions, with and without margin, scale and normalisation."""
    settings = {"margin": margin, "logit_scale": scale, "normalize": normalize}
    first, second = _vectors()
    forward, hits = additive_margin_softmax(first, second, **settings)
    backward, _ = additive_margin_softmax(second, first, **settings)
    for losses, ends in ((forward, (first, second)), (backward, (second, first))):
        expected = oracle.additive_margin_softmax(*ends, margin, scale, normalize, False)
        assert float(tf.reduce_mean(losses)) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    both = oracle.additive_margin_softmax(first, second, margin, scale, normalize, True)
    assert float(tf.reduce_mean(forward + backward)) == pytest.approx(both, rel=1e-5)
    recall = oracle.recall_at_1(first, second, normalize)
    assert 0.0 < recall < 1.0
    assert float(tf.reduce_mean(hits)) == pytest.approx(recall)


def test_recall_is_without_margin():
    """A hit is the nearest candidate, even where the margin puts another one first."""
    anchors = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    candidates = np.array([[0.9, 0.0], [0.8, 1.0]], np.float32)
    settings = {"margin": 0.5, "logit_scale": 1.0, "normalize": False}
    losses, hits = additive_margin_softmax(anchors, candidates, **settings)
    np.testing.assert_array_equal(hits, [1.0, 1.0])
    assert losses[0] > np.log(2.0)


def test_offset_says_where_the_own_candidates_begin():
    """Anchors of the second replica have the losses of their rows in the whole batch."""
    first, second = _vectors()
    settings = {"margin": 0.3, "logit_scale": 5.0}
    losses, hits = additive_margin_softmax(first, second, **settings)
    for offset in (0, 3):
        part = additive_margin_softmax(first[offset : offset + 3], second, offset, **settings)
        np.testing.assert_allclose(part[0], losses[offset : offset + 3], rtol=1e-6)
        np.testing.assert_array_equal(part[1], hits[offset : offset + 3])


def test_zero_vectors_have_finite_losses_and_gradients():
    """A sentence vector of zeros does not make the whole step NaN."""
    anchors = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        losses, _ = additive_margin_softmax(anchors, tf.eye(2, 3), margin=0.3, logit_scale=100.0)
    assert np.isfinite(losses).all()
    assert np.isfinite(tape.gradient(losses, anchors)).all()
