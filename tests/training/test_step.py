"""A step counts its batch, and the mean of its norms leaves out what overflowed."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.training.step import FiniteMean, batch_counts


def test_counts_by_hand():
    """Two groups; only the view's sequences count, whatever the other features are called."""
    first = {"input_mask": tf.constant([[1, 1, 0], [1, 0, 0]])}
    second = {"input_mask": tf.constant([[1, 1, 1, 1]])}
    features = {
        "a+b": {"key": tf.constant([5, 6]), "first": first, "first_hidden": first},
        "c": {"key": tf.constant([7]), "one": second, "label": tf.constant([1])},
    }
    views = {"a+b": ("first",), "c": ("one",)}
    counts = {name: float(value) for name, value in batch_counts(features, views).items()}
    assert counts == {"examples": 3, "tokens": 7, "positions": 10}


def test_the_mean_norm_leaves_out_what_overflowed():
    """An infinity among the steps would hide all others, and is no JSON."""
    mean = FiniteMean("norm")
    assert np.isnan(mean.result())
    for value in (np.inf, 3.0, -np.inf, np.nan, 5.0):
        mean.update_state(tf.constant(value))
    assert float(mean.result()) == 4.0
    mean.reset_state()
    mean.update_state(tf.constant([np.inf, 1.0, 7.0]), sample_weight=[1.0, 1.0, 3.0])
    assert float(mean.result()) == 5.5


@pytest.mark.usefixtures("bfloat16")
def test_the_mean_norm_is_read_from_replicas_in_half_precision():
    """There Keras casts the sums, which TensorFlow reads from the replicas."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        mean = FiniteMean("norm")
        strategy.run(lambda: mean.update_state(tf.constant(3.0)))
        assert float(mean.result()) == 3.0
