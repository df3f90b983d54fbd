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


def _adafactor(values, steps):
    """Computes Shazeer and Stern 2018, algorithms 4 and 5 with §6's relative steps, by sums."""
    values = [value.astype(np.float64) for value in values]
    state = [{} for _ in values]
    for step in range(steps):
        number = step + 1
        decay = 1 - number**-0.8
        rate = min(RATE * (1 - step / 10), number**-0.5)
        for value, kept, gradient in zip(values, state, _gradients(step, values)):
            squares = np.square(gradient.numpy(), dtype=np.float64) + 1e-30
            if value.ndim == 1:
                kept["all"] = decay * kept.get("all", 0) + (1 - decay) * squares
                second = kept["all"]
            else:
                for axis in (-1, -2):
                    sums = squares.sum(axis=axis, keepdims=True)
                    kept[axis] = decay * kept.get(axis, 0) + (1 - decay) * sums
                second = kept[-1] * kept[-2] / kept[-1].sum(axis=-2, keepdims=True)
            update = gradient.numpy() / np.sqrt(second)
            update /= max(1, np.sqrt(np.mean(update**2)))
            value -= max(1e-3, np.sqrt(np.mean(value**2))) * rate * update
    return values


def test_adafactor_is_the_papers():
    variables = _variables()
    expected = _adafactor([variable.numpy() for variable in variables], 4)
    before = [variable.numpy() for variable in variables]
    found = _train(_optimizer("adafactor_keras"), variables, range(4))
    for got, value, start in zip(found, expected, before, strict=True):
        assert np.abs(value - start).max() > 0.1
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)


def test_adafactor_goes_on_where_it_was_saved(tmp_path):
    optimizer, variables = _optimizer("adafactor_keras"), _variables()
    _train(optimizer, variables, range(2))
    prefix = tf.train.Checkpoint(optimizer=optimizer, model=variables).write(str(tmp_path / "c"))
    expected = _train(optimizer, variables, range(2, 4))
    other, others = _optimizer("adafactor_keras"), _variables()
    other.build(others)
    tf.train.Checkpoint(optimizer=other, model=others).read(prefix).assert_consumed()
    for got, value in zip(_train(other, others, range(2, 4)), expected, strict=True):
        np.testing.assert_array_equal(got, value)


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


def test_adafactor_compiled():
    expected = _train(_optimizer("adafactor_keras"), _variables(), range(3))
    optimizer, variables = _optimizer("adafactor_keras"), _variables()
    optimizer.build(variables)
    step = tf.function(
        lambda *gradients: apply_summed(optimizer, list(gradients), variables), jit_compile=True
    )
    found = _train(optimizer, variables, range(3), lambda _, gradients, variables: step(*gradients))
    for got, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)


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
