"""Features and loss of natural language inference against the reference."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.nli import nli_features, nli_loss
from tests.oracles import contrastive_numpy as oracle


def test_features_equal_the_reference():
    """[u, v, |u − v|, u ∗ v] of every pair."""
    rng = np.random.default_rng(0)
    premise, hypothesis = rng.normal(size=[2, 4, 5]).astype(np.float32)
    features = nli_features(premise, hypothesis)
    assert features.shape == [4, 20]
    expected = [oracle.nli_features(u, v) for u, v in zip(premise, hypothesis)]
    np.testing.assert_allclose(features, expected, rtol=1e-6)


def test_features_of_half_precision_vectors():
    """Products of half-precision vectors are computed in float32."""
    u = tf.constant([[1.0 + 2.0**-7]], tf.bfloat16)
    features = nli_features(u, u)
    assert features.dtype == tf.float32
    assert float(features[0, 3]) == (1.0 + 2.0**-7) ** 2


def test_losses_and_hits_equal_the_reference():
    """Cross-entropy of each pair's label, and whether it has the largest logit."""
    logits = np.random.default_rng(1).normal(scale=2.0, size=[6, 3]).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1, 2], np.int32)
    losses, hits = nli_loss(tf.constant(logits), tf.constant(labels))
    expected = [oracle.cross_entropy(row, label) for row, label in zip(logits, labels)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert 0 < float(tf.reduce_sum(hits)) < 6
    np.testing.assert_array_equal(hits, (logits.argmax(axis=1) == labels).astype(np.float32))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_loss_of_half_precision_logits(dtype):
    """Logits in half precision give a loss in float32 that does not overflow."""
    losses, _ = nli_loss(tf.constant([[0.0, 6e4, 0.0]], dtype), tf.constant([0]))
    assert losses.dtype == tf.float32
    assert float(losses[0]) == pytest.approx(6e4, rel=1e-2)
