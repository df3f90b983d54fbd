"""The values that a step computes, to compare two ways of computing it."""

import numpy as np
import tensorflow as tf

from official_cmlm.training.chunks import chunked_gradients
from official_cmlm.training.step import summed_over_replicas, whole_gradients
from tests.conftest import mirrored_strategy

KEY = 1234


def step_values(model, features, chunk_size=0, key=KEY):
    """Returns loss, gradients and metrics, summed over the replicas; chunk size 0: whole."""
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


def step_of_any_size(model, features, **options):
    """Returns a step in chunks of 3 for batches of unknown sizes and lengths."""
    unknown = tf.nest.map_structure(
        lambda value: tf.TensorSpec([None] * len(value.shape), value.dtype), features
    )
    return tf.function(
        lambda batch: step_values(model, batch, 3),
        input_signature=[unknown],
        autograph=False,
        **options,
    )


def check_equal(found, expected, rtol=1e-5):
    """Checks that values are the same; the first, the loss, is not near 0.

    Gradients of the keys' biases are 0 but for rounding, some 1e-7.
    """
    assert float(expected[0]) > 0.1
    for got, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=rtol, atol=rtol * np.abs(value).max() + 5e-7)


def halves_of(batch):
    """Returns the two halves of a batch."""
    return [tf.nest.map_structure(lambda x, i=i: tf.split(x, 2, axis=0)[i], batch) for i in (0, 1)]


def replica_values(single, whole, make_model, chunk_size=0):
    """Returns the values of each of two replicas with half of a batch each.

    Args:
      single: a model of one device, whose weights the replicas get.
      whole: the batch.
      make_model: makes the model of the replicas.
      chunk_size: as for `step_values`.
    """
    halves, strategy = halves_of(whole), mirrored_strategy()
    with strategy.scope():
        mirrored = make_model()
    mirrored.set_weights(single.get_weights())
    features = strategy.experimental_distribute_values_from_function(
        lambda context: halves[context.replica_id_in_sync_group]
    )
    # Not traced: that takes longer than the step.
    values = strategy.run(step_values, args=(mirrored, features, chunk_size))
    return [
        [strategy.experimental_local_results(value)[replica].numpy() for value in values]
        for replica in range(2)
    ]
