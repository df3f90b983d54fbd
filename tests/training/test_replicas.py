"""Two replicas train as one device does on the same global batch.

`test_step_matrix.py` compares losses and gradients.
"""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import mirrored_strategy
from tests.modeling.helpers import randomize
from tests.training.all_objectives import unequal_batch
from tests.training.helpers import by_objective, optimizer_config, task_config
from tests.training.step_values import halves_of

WEIGHTS = {"cmlm": 0.5, "quick_thought": 2.0}
# A large epsilon makes Adam's step proportional to the gradient, tiny ones included.
CLIP_NORM = 0.05
ADAM = {"epsilon": 1.0, "gradient_clip_norm": CLIP_NORM, "weight_decay_rate": 0.0}


@pytest.fixture(scope="module")
def task(records_dir):
    objectives = {
        "cmlm": CmlmConfig(num_projections=3, weight=WEIGHTS["cmlm"]),
        "quick_thought": QuickThoughtConfig(logit_scale=5.0, weight=WEIGHTS["quick_thought"]),
    }
    return SentenceEncoderTask(task_config(records_dir, objectives, {"num_layers": 1}))


@pytest.fixture(scope="module")
def strategy():
    return mirrored_strategy()


@pytest.fixture(scope="module")
def models(task, strategy):
    """Returns the same random weights on one device and on two."""
    single = randomize(task.build_model())
    with strategy.scope():
        mirrored = task.build_model()
    mirrored.set_weights(single.get_weights())
    return single, mirrored


@pytest.fixture(scope="module")
def batches(task):
    """Returns a global batch and the two replicas' shares of it."""
    whole = {"cmlm+quick_thought": unequal_batch(task, "cmlm")["cmlm"]}
    return whole, halves_of(whole)


def _distribute(strategy, shares):
    return strategy.experimental_distribute_values_from_function(
        lambda context: shares[context.replica_id_in_sync_group]
    )


def test_optimizer_step_equals_one_device(task, strategy, models, batches):
    """A step that is clipped by the norm of the global gradient: equal weights, metrics, loss."""
    whole, shares = batches
    parts = [by_objective(share)["cmlm"]["second_masked"] for share in shares]
    counts = [float(tf.reduce_sum(part["masked_lm_weights"])) for part in parts]
    assert counts[0] != counts[1]
    single, mirrored = models
    config = optimizer_config(rate=100.0, **ADAM)
    before = single.get_weights()
    optimizer, metrics = task.create_optimizer(config), task.build_metrics()
    loss = task.train_step(whole, single, optimizer, metrics)["loss"]
    (norm,) = (metric.result() for metric in metrics if metric.name == "gradient_norm")
    assert norm > 2 * CLIP_NORM
    with strategy.scope():
        distributed_optimizer = task.create_optimizer(config)
        _ = distributed_optimizer.iterations
        distributed_metrics = task.build_metrics()

    arguments = (mirrored, distributed_optimizer, distributed_metrics)
    features = _distribute(strategy, shares)
    losses = strategy.run(task.train_step, args=(features, *arguments))["loss"]
    mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
    assert float(mean) == pytest.approx(float(loss), rel=1e-5)
    after = single.get_weights()
    assert max(np.abs(a - b).max() for a, b in zip(after, before)) > 1e-3
    for got, expected in zip(mirrored.get_weights(), after):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for got, expected in zip(distributed_metrics, metrics):
        assert got.name == expected.name
        assert float(got.result()) == pytest.approx(float(expected.result()), rel=1e-4)
