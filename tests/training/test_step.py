"""A step: its counts and norms, its seed, two replicas, half precision, its optimizers."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization

from experiments import registry
from official_cmlm.common.errors import UserError
from official_cmlm.objectives import objectives
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from official_cmlm.training.checks import check_trainer
from official_cmlm.training.step import FiniteMean, apply_summed, batch_counts, optimizer_variables
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import two_replicas
from tests.modeling.helpers import randomize
from tests.training.all_objectives import SETTINGS, batch_of, task_of, unequal_batch
from tests.training.helpers import DROPOUT, optimizer_config, task_config
from tests.training.step_values import distribute


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


_ADAM = optimizer_config(weight_decay_rate=0.01)


def _train(task, batches, seed, start=None):
    """Makes a model and trains it with the seed, from `start` if that is given.

    Returns:
      Its initial weights, its last ones, and how many of them are trained.
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
    return before, model.get_weights(), len(model.trainable_variables)


def _same_bits(one, other):
    return len(one) == len(other) > 20 and all(map(np.array_equal, one, other))


def _distance(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "contrastive" else pytest.mark.long) for n in objectives()],
)
def test_the_same_seed_gives_the_same_weights(folders, name):
    """Two steps with dropout begin and end with the same bits; another seed's do neither."""
    task = task_of(folders, name, DROPOUT)
    batches = [batch_of(task, name, start=start) for start in (0, 8)]
    before, after, trained = _train(task, batches, 3)
    again = _train(task, batches, 3)
    assert _same_bits(before, again[0]) and _same_bits(after, again[1])
    # All that is trained moves, the keys' biases at most apart. DiffCSE predicts with a copy of the
    # head, so that the head's five variables stay.
    unused = 3 + 5 * (name == "diff_cse")
    assert sum((a != b).any() for a, b in zip(before, after)) >= trained - unused
    # From the same weights, other dropout masks lead elsewhere.
    initial, other, _ = _train(task, batches, 4, start=before)
    assert _distance(initial, before) > 0.1 and _distance(other, after) > 1e-3


def test_optimizer_step_equals_one_device(records_dir):
    """A step that is clipped by the norm of the global gradient: equal weights, metrics, loss."""
    chosen = {
        "cmlm": CmlmConfig(num_projections=3, weight=0.5),
        "quick_thought": QuickThoughtConfig(logit_scale=5.0, weight=2.0),
    }
    task = SentenceEncoderTask(task_config(records_dir, chosen, {"num_layers": 1}))
    whole = {"cmlm+quick_thought": unequal_batch(task, "cmlm")["cmlm"]}
    strategy, single = two_replicas(), randomize(task.build_model())
    before = single.get_weights()
    with strategy.scope():
        mirrored = task.build_model()
    mirrored.set_weights(before)
    # A large epsilon makes Adam's step proportional to the gradient, tiny ones included.
    config = optimizer_config(
        rate=100.0, epsilon=1.0, gradient_clip_norm=0.05, weight_decay_rate=0.0
    )
    optimizer, metrics = task.create_optimizer(config), task.build_metrics()
    loss = task.train_step(whole, single, optimizer, metrics)["loss"]
    (norm,) = (metric.result() for metric in metrics if metric.name == "gradient_norm")
    assert norm > 0.1
    with strategy.scope():
        distributed_optimizer = task.create_optimizer(config)
        _ = distributed_optimizer.iterations
        distributed_metrics = task.build_metrics()
    features = distribute(strategy, whole)
    arguments = (features, mirrored, distributed_optimizer, distributed_metrics)
    losses = strategy.run(task.train_step, args=arguments)["loss"]
    mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
    assert float(mean) == pytest.approx(float(loss), rel=1e-5)
    after = single.get_weights()
    assert max(np.abs(a - b).max() for a, b in zip(after, before)) > 1e-3
    for got, expected in zip(mirrored.get_weights(), after):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for got, expected in zip(distributed_metrics, metrics):
        assert got.name == expected.name
        assert float(got.result()) == pytest.approx(float(expected.result()), rel=1e-4)


@pytest.mark.long
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
    return np.array([float(step()) for _ in range(50)])


SHAPES = {"table": (40, 6), "kernel": (6, 2, 3), "bias": (6,)}


def _optimizer(kind, **settings):
    config = optimization.OptimizationConfig(
        {
            "optimizer": {"type": kind, kind: settings},
            "learning_rate": {
                "type": "polynomial",
                "polynomial": {"initial_learning_rate": 0.3, "decay_steps": 10},
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
    gradients = [rng.normal(scale=step + 1, size=variable.shape) for variable in variables]
    gradients[0][step::3] = 0
    return [tf.constant(gradient, tf.float32) for gradient in gradients]


def test_adafactor_on_two_replicas():
    """Both apply the same summed gradients, in a graph as a training has them."""
    single, expected = _optimizer("adafactor_keras"), _variables()
    strategy = two_replicas()
    with strategy.scope():
        optimizer, variables = _optimizer("adafactor_keras"), _variables()
        _ = optimizer.iterations
    step = tf.function(lambda gradients: apply_summed(optimizer, gradients, variables))
    for number in range(3):
        gradients = _gradients(number, expected)
        apply_summed(single, gradients, expected)
        strategy.run(step, args=(gradients,))
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
    size = sum(v.shape.num_elements() * v.dtype.size for v in optimizer_variables(optimizer))
    assert bytes_each <= size / 100_000 < bytes_each + 0.05


@pytest.mark.parametrize("kind", ["adafactor", "slide"])
def test_placeholders_are_refused(kind):
    """Model Garden names them, but has no code for them."""
    params = registry.load("demo")
    params.trainer.optimizer_config.optimizer.type = kind
    with pytest.raises(UserError, match=rf"type is {kind}.*no code for it; .*adafactor_keras"):
        check_trainer(params)
