"""The optimizers that experiments can name: bytes of their state, Adafactor against its paper."""

import numpy as np
import pytest
import tensorflow as tf
from official.modeling import optimization

from experiments import registry
from official_cmlm.errors import UserError
from official_cmlm.training.run import check_trainer
from official_cmlm.training.step import apply_summed, optimizer_variables
from tests.conftest import mirrored_strategy

SHAPES = {"table": (40, 6), "kernel": (6, 2, 3), "bias": (6,)}
RATE = 0.3


def _optimizer(kind, **settings):
    config = optimization.OptimizationConfig(
        {
            "optimizer": {"type": kind, kind: settings},
            "learning_rate": {
                "type": "polynomial",
                "polynomial": {
                    "initial_learning_rate": RATE,
                    "end_learning_rate": 0.0,
                    "decay_steps": 10,
                },
            },
        }
    )
    factory = optimization.OptimizerFactory(config)
    return factory.build_optimizer(factory.build_learning_rate())


def _variables(shapes=None):
    rng = np.random.default_rng(0)
    return [
        tf.Variable(rng.normal(size=shape), dtype=tf.float32, name=name)
        for name, shape in (shapes or SHAPES).items()
    ]


def _gradients(step, variables):
    rng = np.random.default_rng(100 + step)
    # Steps of different size, and rows of a table that a batch has not read.
    found = [rng.normal(scale=step + 1, size=variable.shape) for variable in variables]
    found[0][step::3] = 0
    return [tf.constant(gradient, tf.float32) for gradient in found]


def _train(optimizer, variables, steps, apply=apply_summed):
    for step in steps:
        apply(optimizer, _gradients(step, variables), variables)
    return [variable.numpy() for variable in variables]


def test_adafactor_on_two_replicas():
    """Both apply the same summed gradients, in a graph as a training has them."""
    expected = _train(_optimizer("adafactor_keras"), _variables(), range(3))
    strategy = mirrored_strategy()
    with strategy.scope():
        optimizer, variables = _optimizer("adafactor_keras"), _variables()
        _ = optimizer.iterations
    step = tf.function(lambda gradients: apply_summed(optimizer, gradients, variables))

    for number in range(3):
        strategy.run(step, args=(_gradients(number, variables),))
    for variable, value in zip(variables, expected, strict=True):
        for local in strategy.experimental_local_results(variable):
            np.testing.assert_allclose(local, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "bytes_each"),
    [
        ("sgd", {}, 0),
        ("sgd", {"momentum": 0.9}, 4),
        ("adafactor_keras", {}, 4),
        ("adamw", {}, 8),
        ("lamb", {}, 8),
    ],
)
def test_bytes_of_state(kind, settings, bytes_each):
    """As the documents have them: of a table, for each of its numbers, but for rows and columns."""
    optimizer = _optimizer(kind, **settings)
    (table,) = variables = _variables({"table": (500, 200)})
    apply_summed(optimizer, [tf.ones_like(table)], variables)
    found = sum(v.shape.num_elements() * v.dtype.size for v in optimizer_variables(optimizer))
    assert bytes_each <= found / 100_000 < bytes_each + 0.05


@pytest.mark.parametrize("kind", ["adafactor", "slide"])
def test_placeholders_are_refused(kind):
    """Model Garden names them, but has no code for them."""
    params = registry.load("demo")
    params.trainer.optimizer_config.optimizer.type = kind
    with pytest.raises(UserError, match=rf"type is {kind}.*no code for it; .*adafactor_keras"):
        check_trainer(params)
