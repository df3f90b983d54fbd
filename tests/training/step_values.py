"""What a step computes, to compare two ways of computing it."""

import numpy as np
import tensorflow as tf

from official_cmlm.training.chunks import chunked_gradients
from official_cmlm.training.gradients import summed_over_replicas
from official_cmlm.training.step import whole_gradients
from tests.conftest import mirrored_strategy

KEY = 1234


def step_values(model, features, chunk_size=0, key=KEY):
    """Loss, gradients and metrics of a step, summed over the replicas; chunk size 0: whole."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    arguments = (model, features, tf.constant(key, tf.int64), tf.constant(1.0 / replicas))
    if chunk_size:
        loss, gradients, outputs = chunked_gradients(*arguments, chunk_size)
    else:
        loss, gradients, outputs = whole_gradients(*arguments)
    gradients = [
        tf.zeros_like(v) if g is None else tf.convert_to_tensor(g)
        for g, v in zip(gradients, model.trainable_variables, strict=True)
    ]
    metrics = tf.nest.flatten({name: output.metrics for name, output in outputs.items()})
    return summed_over_replicas([loss / replicas, *gradients, *metrics])


def check_equal(found, expected, rtol=1e-5):
    """The same values, of which the first, the loss, is not near 0."""
    assert float(expected[0]) > 0.1
    for got, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=rtol, atol=rtol * np.abs(value).max() + 1e-7)


def check_two_replicas(single, whole, make_model):
    """Two replicas with half of a batch each compute what one device does with all of it.

    Args:
      single: the model of one device.
      whole: the batch.
      make_model: makes that of the replicas, which gets the same weights.
    """
    expected = [value.numpy() for value in step_values(single, whole)]
    halves = [
        tf.nest.map_structure(lambda x, i=i: tf.split(x, 2, axis=0)[i], whole) for i in range(2)
    ]
    strategy = mirrored_strategy()
    with strategy.scope():
        mirrored = make_model()
    mirrored.set_weights(single.get_weights())
    features = strategy.experimental_distribute_values_from_function(
        lambda context: halves[context.replica_id_in_sync_group]
    )
    values = strategy.run(step_values, args=(mirrored, features))
    for replica in range(2):
        found = [strategy.experimental_local_results(v)[replica].numpy() for v in values]
        check_equal(found, expected, rtol=1e-4)
