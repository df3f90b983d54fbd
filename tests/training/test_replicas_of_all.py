"""Every objective trains on two replicas, and some on four, as one device on the same batch."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from official.modeling import optimization

from official_cmlm.training.step import train_step
from tests.conftest import mirrored_strategy
from tests.modeling.helpers import randomize
from tests.training.all_objectives import batch_of, task_of
from tests.training.four_devices import NAMES

BOTH = {"negatives": "both_views", "bidirectional": True}
CASES = {
    "bitext_retrieval": ("bitext_retrieval", {}),
    "nli": ("nli", {}),
    "contrastive": ("contrastive", {}),
    "contrastive-both": (
        "contrastive",
        BOTH | {"projection_head": "none", "matryoshka_dims": [4, 8]},
    ),
    "cmlm_cse": ("cmlm_cse", {}),
    # At 0.15 all short spans have equally many.
    "declutr": ("declutr", {"masking_rate": 0.4}),
    "mlm": ("mlm", {}),
    "quick_thought": ("quick_thought", {}),
}


def _step(task, model, features):
    """The loss as a trainer sees it, and all gradients, summed over the replicas."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        loss = task.build_losses(features, outputs) / replicas
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    ((_, output),) = outputs.items()
    metrics = tf.nest.flatten([output.metrics[metric] for metric in sorted(output.metrics)])
    sums = [loss, *(tf.convert_to_tensor(gradient) for gradient in gradients), *metrics]
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)


# A large epsilon makes Adam's step proportional to the gradient, tiny ones included.
CLIP_NORM = 0.05
ADAM = {
    "optimizer": {
        "type": "adamw",
        "adamw": {"epsilon": 1.0, "gradient_clip_norm": CLIP_NORM, "weight_decay_rate": 0.0},
    },
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 100.0}},
}


def _check_clipped_step(task, strategy, single, mirrored, whole, shares, gradients):
    """A step that is clipped by the norm of the global gradient, on both sides."""
    norm = np.sqrt(sum(np.square(gradient, dtype=np.float64).sum() for gradient in gradients))
    assert norm > 2 * CLIP_NORM
    config = optimization.OptimizationConfig(ADAM)
    before, optimizer = single.get_weights(), task.create_optimizer(config)
    _, found, _ = train_step(single, optimizer, whole, 0)
    assert float(found) == pytest.approx(norm, rel=1e-5)
    with strategy.scope():
        other = task.create_optimizer(config)
        _ = other.iterations

    norms = strategy.run(lambda share: train_step(mirrored, other, share, 0)[1], (shares,))
    for local in strategy.experimental_local_results(norms):
        assert float(local) == pytest.approx(norm, rel=1e-4)
    after = single.get_weights()
    assert max(np.abs(a - b).max() for a, b in zip(after, before)) > 1e-2
    for got, value in zip(mirrored.get_weights(), after):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)


def _masked(half):
    """Number of masked tokens in the features of one replica."""
    return sum(
        float(tf.reduce_sum(sequence["masked_lm_weights"]))
        for name, sequence in half.items()
        if name.endswith("_masked")
    )


def _unequal_batch(task, name):
    """A batch and its halves; where tokens are masked, one half has more of them.

    Replicas with equally many could not tell a mean of means from the mean.
    """
    for start in range(20):
        whole = batch_of(task, name, start=start)
        halves = [
            tf.nest.map_structure(lambda x, i=i: tf.split(x, 2, axis=0)[i], whole) for i in range(2)
        ]
        first, second = (_masked(half[name]) for half in halves)
        if first != second or not first:
            return whole, halves
    raise AssertionError("all batches have equally many masked tokens in both halves")


@pytest.mark.parametrize("case", CASES)
def test_loss_gradients_and_metrics_equal_one_device(folders, case):
    """Loss, every gradient and metric, and a clipped step of Adam, are those of one device."""
    name, settings = CASES[case]
    task = task_of(folders, name, **settings)
    whole, halves = _unequal_batch(task, name)
    strategy = mirrored_strategy()
    single = randomize(task.build_model())
    with strategy.scope():
        mirrored = task.build_model()
    mirrored.set_weights(single.get_weights())
    features = strategy.experimental_distribute_values_from_function(
        lambda context: halves[context.replica_id_in_sync_group]
    )
    expected = [value.numpy() for value in _step(task, single, whole)]

    # Not traced, here and below: that takes longer than the few steps.
    values = strategy.run(_step, args=(task, mirrored, features))
    learning = 1 + len(single.trainable_variables)
    assert (
        len(values)
        == len(expected)
        == learning + 2 * len(single.objectives[name].metric_directions)
    )
    assert expected[0] > 0.1
    # All but the keys' biases, and rows of tables that no batch needs.
    assert sum(np.abs(gradient).max() > 1e-4 for gradient in expected[1:learning]) >= learning - 4
    for replica in range(2):
        for got, value in zip(values, expected):
            got = strategy.experimental_local_results(got)[replica]
            np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)
    gradients = expected[1:learning]
    _check_clipped_step(task, strategy, single, mirrored, whole, features, gradients)


@pytest.mark.long
def test_a_step_on_four_devices_equals_one(vocabulary, tmp_path):
    vocabulary.save(tmp_path)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.training.four_devices"),
            *(str(tmp_path), str(tmp_path / "records")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(NAMES)
