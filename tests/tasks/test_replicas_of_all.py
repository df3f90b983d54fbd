"""Every objective trains on two replicas as on one device with the same global batch."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import mirrored_strategy
from tests.modeling.helpers import randomize
from tests.tasks.all_objectives import batch_of, task_of

BOTH = {"negatives": "both_views", "bidirectional": True}
CASES = {
    "bitext_retrieval": ("bitext_retrieval", {}),
    "nli": ("nli", {}),
    "contrastive": ("contrastive", {}),
    "contrastive-both": ("contrastive", BOTH),
    "cmlm_cse": ("cmlm_cse", {}),
    "declutr": ("declutr", {}),
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


def _check_unequal_masks(*halves):
    """Replicas with equally many masked tokens could not tell a mean of means from the mean."""
    counts = [
        sum(
            float(tf.reduce_sum(sequence["masked_lm_weights"]))
            for name, sequence in half.items()
            if name.endswith("_masked")
        )
        for half in halves
    ]
    assert counts[0] != counts[1] or not any(counts)


@pytest.mark.parametrize("case", CASES)
def test_loss_gradients_and_metrics_equal_one_device(folders, case):
    """Loss, every gradient and every metric of a step are those of one device."""
    name, settings = CASES[case]
    task = task_of(folders, name, **settings)
    whole = batch_of(task, name)
    halves = [
        tf.nest.map_structure(lambda x, i=i: tf.split(x, 2, axis=0)[i], whole) for i in range(2)
    ]
    _check_unequal_masks(*(half[name] for half in halves))
    strategy = mirrored_strategy()
    single = randomize(task.build_model())
    with strategy.scope():
        mirrored = task.build_model()
    mirrored.set_weights(single.get_weights())
    features = strategy.experimental_distribute_values_from_function(
        lambda context: halves[context.replica_id_in_sync_group]
    )
    expected = [value.numpy() for value in _step(task, single, whole)]

    @tf.function
    def distributed(features):
        return strategy.run(_step, args=(task, mirrored, features))

    values = distributed(features)
    learning = 1 + len(single.trainable_variables)
    assert len(values) == len(expected) == learning + 2 * len(single.objectives[name].metric_names)
    assert expected[0] > 0.1
    # All but the keys' biases, and rows of tables that no batch needs.
    assert sum(np.abs(gradient).max() > 1e-4 for gradient in expected[1:learning]) >= learning - 4
    for replica in range(2):
        for got, value in zip(values, expected):
            got = strategy.experimental_local_results(got)[replica]
            np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5)
