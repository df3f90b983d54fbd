"""Trainings in bfloat16 lower the loss as in float32, whatever the objective."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.training.all_objectives import SETTINGS, batch_of, task_of

_STEPS = 50


@pytest.fixture
def float32_after():
    yield
    tf_keras.mixed_precision.set_global_policy("float32")


@pytest.mark.long
@pytest.mark.usefixtures("float32_after")
@pytest.mark.parametrize("name", SETTINGS)
def test_losses_after_fifty_steps(folders, name):
    """Fifty steps on one batch add up more rounding than one does."""
    single, half = (_losses(folders, name, policy) for policy in ("float32", "mixed_bfloat16"))
    gain = single[0] - single[-10:].mean()
    assert gain > 0.05 * single[0]
    assert half[-10:].mean() < single[-10:].mean() + 0.15 * gain


def _losses(folders, name, policy):
    """Trains an objective; returns the loss of each step."""
    tf_keras.mixed_precision.set_global_policy(policy)
    tf_keras.utils.set_random_seed(1)
    task = task_of(folders, name)
    model, batch = task.build_model(), batch_of(task, name)
    optimizer = tf_keras.optimizers.legacy.Adam(1e-3)
    # Adam creates it when it is first read, which must not be in the function.
    _ = optimizer.iterations
    step = tf.function(
        lambda: task.train_step(batch, model, optimizer, [])["loss"], autograph=False
    )
    return np.array([float(step()) for _ in range(_STEPS)])
