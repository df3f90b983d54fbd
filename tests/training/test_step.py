"""A step counts its batch, and compiles with XLA, as a TPU demands, to the same values."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization

from official_cmlm.training.step import FiniteMean, batch_counts
from official_cmlm.training.task import SentenceEncoderTask
from tests.modeling.helpers import randomize
from tests.training.all_objectives import SETTINGS, batch_of, records_of, task_of
from tests.training.helpers import task_config


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


def test_counts_of_a_real_batch(folders):
    """The pipeline pads with an id that no token of these records has."""
    task = task_of(folders, "cmlm")
    batch = batch_of(task, "cmlm")
    ids = [batch["cmlm"][name]["input_word_ids"].numpy() for name in ("first", "second")]
    counts = batch_counts(batch, {"cmlm": ("first", "second")})
    assert float(counts["tokens"]) == sum(np.count_nonzero(part) for part in ids)
    assert float(counts["positions"]) == sum(part.size for part in ids)
    assert float(counts["examples"]) == 8


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


_SGD = {
    "optimizer": {"type": "sgd", "sgd": {"momentum": 0.0}},
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
}
_DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}


def _step(folders, name, static, compiled):
    """Loss, metrics and weights after one step."""
    config = task_config(
        records_of(folders, name),
        {name: SETTINGS[name]},
        {"num_layers": 1, **_DROPOUT},
    )
    tf_keras.utils.set_random_seed(3)
    task = SentenceEncoderTask(config, static_shapes=static)
    model = randomize(task.build_model())
    optimizer = task.create_optimizer(optimization.OptimizationConfig(_SGD))
    _ = optimizer.iterations
    metrics = task.build_metrics()

    @tf.function(jit_compile=compiled)
    def step(features):
        return task.train_step(features, model, optimizer, metrics)["loss"]

    loss = step(batch_of(task, name))
    return [loss.numpy(), *(float(m.result()) for m in metrics), *model.get_weights()]


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_compiled_step_equals_the_other(folders, name):
    """Loss, metrics and updated weights, with dropout on and static shapes."""
    compiled = _step(folders, name, static=True, compiled=True)
    plain = _step(folders, name, static=False, compiled=False)
    assert plain[0] > 0.1
    for found, expected in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
