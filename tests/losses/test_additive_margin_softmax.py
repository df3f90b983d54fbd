"""In-batch retrieval; `objectives/test_bitext_retrieval.py` compares it with the reference."""

import numpy as np
import tensorflow as tf

from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax


def test_recall_is_without_margin():
    """A hit is the nearest candidate, even where the margin puts another one first."""
    anchors = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    candidates = np.array([[0.9, 0.0], [0.8, 1.0]], np.float32)
    settings = {"margin": 0.5, "logit_scale": 1.0, "normalize": False}
    losses, hits = additive_margin_softmax(anchors, candidates, **settings)
    np.testing.assert_array_equal(hits, [1.0, 1.0])
    assert losses[0] > np.log(2.0)


def test_zero_vectors_have_finite_losses_and_gradients():
    """A sentence vector of zeros does not make the whole step NaN."""
    anchors = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        losses, _ = additive_margin_softmax(anchors, tf.eye(2, 3), margin=0.3, logit_scale=100.0)
    assert np.isfinite(losses).all()
    assert np.isfinite(tape.gradient(losses, anchors)).all()
