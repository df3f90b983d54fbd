"""The same seed gives the same training, bit for bit, whatever is trained."""

import numpy as np
import pytest
import tf_keras

from official_cmlm.objectives import objectives
from tests.training.all_objectives import batch_of, task_of
from tests.training.helpers import optimizer_config

DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}
_ADAM = optimizer_config(weight_decay_rate=0.01)


def _train(task, batches, seed, start=None):
    """Returns a model made and trained with the seed, one step a batch, and its initial weights.

    Args:
      task: of one objective.
      batches: of the steps.
      seed: of initial weights and dropout.
      start: weights to begin with instead of the initial ones.
    """
    tf_keras.utils.set_random_seed(seed)
    task.task_config.train_data.seed = seed
    model = task.build_model()
    task.initialize(model)
    before = model.get_weights()
    if start is not None:
        model.set_weights(start)
    optimizer = task.create_optimizer(_ADAM)
    # The optimizers create this lazily; a step function must not be the first to do so.
    _ = optimizer.iterations

    def step(batch):
        return task.train_step(batch, model, optimizer)["loss"]

    assert np.isfinite([float(step(batch)) for batch in batches]).all()
    return model, before


def _batches(task, name):
    return [batch_of(task, name, start=start) for start in (0, 8)]


def _check_same_bits(one, other):
    assert len(one) == len(other) > 20
    for weight, same in zip(one, other):
        np.testing.assert_array_equal(weight, same)


def _distance(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "contrastive" else pytest.mark.long) for n in objectives()],
)
def test_the_same_seed_gives_the_same_weights(folders, name):
    """Two steps with dropout begin and end with the same bits; another seed's do neither."""
    task = task_of(folders, name, DROPOUT)
    batches = _batches(task, name)
    model, before = _train(task, batches, 3)
    again, start = _train(task, batches, 3)
    _check_same_bits(before, start)
    _check_same_bits(model.get_weights(), again.get_weights())
    moved = sum((a != b).any() for a, b in zip(before, model.get_weights()))
    # All that is trained, the keys' biases at most apart.
    assert moved >= len(model.trainable_variables) - 3
    # From the same weights, other dropout masks lead elsewhere.
    other, initial = _train(task, batches, 4, start=before)
    assert _distance(initial, before) > 0.1
    assert _distance(other.get_weights(), model.get_weights()) > 1e-3
