"""Sums over predicted tokens, and what replicas' losses are outside of a replica."""

import numpy as np
import tensorflow as tf

from official_cmlm.losses import replicas
from official_cmlm.losses.masked_language_model import masked_cross_entropy
from tests.conftest import two_replicas

IDS = np.array([[1, 4, 0], [2, 3, 0]], np.int32)
WEIGHTS = np.array([[1, 1, 0], [1, 0, 0]], np.float32)


def _logits():
    logits = np.random.default_rng(0).normal(size=[2, 3, 5]).astype(np.float32)
    logits[0, 0, 1] = 9.0
    return logits


def test_half_precision_logits_are_summed_in_float32():
    sums = masked_cross_entropy(tf.cast(_logits(), tf.bfloat16), IDS, WEIGHTS)
    assert {value.dtype for value in sums} == {tf.float32}


def test_without_replicas_all_is_local():
    """On one device the mean is total / weight, 0 of nothing, and a gather is the rows."""
    assert float(replicas.global_mean(tf.constant(6.0), tf.constant(4.0))) == 1.5
    assert float(replicas.global_mean(tf.constant(0.0), tf.constant(0.0))) == 0.0
    rows = tf.eye(2)
    gathered, offset = replicas.gather(rows)
    np.testing.assert_array_equal(gathered, rows)
    assert int(offset) == 0


def test_replicas_without_any_weight():
    """Replicas whose batches hold nothing to predict have the loss 0, and no NaN gradient."""
    strategy = two_replicas()

    @tf.function
    def step(total, weight):
        return strategy.run(replicas.global_mean, args=(total, weight))

    for weight, expected in ((0.0, 0.0), (2.0, 1.5)):
        losses = step(tf.constant(3.0 * (weight > 0)), tf.constant(weight))
        for loss in strategy.experimental_local_results(losses):
            assert float(loss) == expected
