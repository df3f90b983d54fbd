"""Steps on JAX's device: the same as TensorFlow's, whatever is trained, and across interruptions."""

import concurrent.futures
import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization

from experiments import registry, runtime
from experiments.training import run
from official_cmlm.errors import Stopped, UserError
from official_cmlm.tasks.gradients import optimizer_variables
from official_cmlm.tasks.sentence_encoder import SentenceEncoderTask
from official_cmlm.training.jax_loop import JaxLoop
from tests.experiments.test_training import tiny_run, weights_of
from tests.modeling.helpers import randomize
from tests.tasks.all_objectives import SETTINGS, batch_of, records_of, write_folders
from tests.tasks.helpers import data, task_config

jax = pytest.importorskip("jax", reason="needs JAX: pip install jax")

_DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}
_STEPS = 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory, vocabulary):
    return write_folders(tmp_path_factory.mktemp("all_records"), vocabulary)


def _optimizer(kind, rate):
    return optimization.OptimizationConfig(
        {
            "optimizer": {"type": kind},
            "learning_rate": {"type": "constant", "constant": {"learning_rate": rate}},
        }
    )


def _trained(folders, names, kind, rate, on_jax):
    """Losses and metrics of each step, and the weights after all, of a sum of objectives."""
    settings = {
        name: SETTINGS[name].replace(
            train_data=data(records_of(folders, name)),
            validation_data=data(records_of(folders, name), is_training=False),
        )
        for name in names
    }
    config = task_config(
        records_of(folders, names[0]), settings, {"num_layers": 1, **_DROPOUT}, static_shapes=True
    )
    tf_keras.utils.set_random_seed(3)
    task = SentenceEncoderTask(config)
    model = randomize(task.build_model())
    optimizer = task.create_optimizer(_optimizer(kind, rate))
    _ = optimizer.iterations
    metrics, loss = task.build_metrics(), tf_keras.metrics.Sum("loss")

    def step(features):
        for metric in (*metrics, loss):
            metric.reset_state()
        loss.update_state(task.train_step(features, model, optimizer, metrics)["loss"])

    batches = itertools.cycle(
        {k: v for name in names for k, v in _batch(folders, name, start).items()}
        for start in (0, 8)
    )
    variables = [v for metric in (*metrics, loss) for v in metric.variables]
    loop = on_jax and JaxLoop(
        step, variables, lambda: optimizer_variables(optimizer), report=lambda line: None
    )
    compiled = tf.function(step, jit_compile=True, autograph=False)
    found = []
    for _ in range(_STEPS):
        if loop:
            loop.run(batches, 1)
        else:
            compiled(next(batches))
        found.append([float(metric.result()) for metric in (loss, *metrics)])
    if loop:
        loop.pull()
    return np.array(found), {v.name: v.numpy() for v in model.trainable_variables}


def _batch(folders, name, start):
    settings = {name: SETTINGS[name]}
    config = task_config(records_of(folders, name), settings, {"num_layers": 1})
    return batch_of(SentenceEncoderTask(config), name, start=start)


def _assert_equal_training(folders, names, kind, rate):
    found, weights = _trained(folders, names, kind, rate, on_jax=True)
    expected, expected_weights = _trained(folders, names, kind, rate, on_jax=False)
    # The weights move, or equal ones would say nothing.
    assert np.ptp(expected[:, 0]) > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for name, value in expected_weights.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_sum_of_all_objectives(folders):
    """20 steps with dropout: every objective's loss and figures, and the weights."""
    _assert_equal_training(folders, list(SETTINGS), "sgd", 0.05)


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_every_objective(folders, name):
    """Each alone, by the two optimizers of the experiments."""
    for kind in ("adamw", "lamb"):
        _assert_equal_training(folders, [name], kind, 1e-3)
