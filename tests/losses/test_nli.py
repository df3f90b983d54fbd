"""Features and loss of natural language inference against the reference."""

import math

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


def test_premise_and_hypothesis_are_told_apart():
    """Only the difference and the product are the same with both sides swapped."""
    u, v = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, -4.0]])
    there, back = nli_features(u, v), nli_features(v, u)
    np.testing.assert_array_equal(there, [[1.0, 2.0, 3.0, -4.0, 2.0, 6.0, 3.0, -8.0]])
    np.testing.assert_array_equal(there[:, 4:], back[:, 4:])
    np.testing.assert_array_equal(there[:, :2], back[:, 2:4])


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


def test_losses_by_hand():
    """Logits of log 2, log 1 and log 5: probabilities of 2, 1 and 5 eighths."""
    logits = tf.math.log([[2.0, 1.0, 5.0]] * 3)
    losses, hits = nli_loss(logits, tf.constant([0, 1, 2]))
    np.testing.assert_allclose(losses, [math.log(4), math.log(8), math.log(1.6)], rtol=1e-6)
    np.testing.assert_array_equal(hits, [0.0, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_loss_of_half_precision_logits(dtype):
    """Logits in half precision give a loss in float32 that does not overflow."""
    losses, _ = nli_loss(tf.constant([[0.0, 6e4, 0.0]], dtype), tf.constant([0]))
    assert losses.dtype == tf.float32
    assert float(losses[0]) == pytest.approx(6e4, rel=1e-2)
