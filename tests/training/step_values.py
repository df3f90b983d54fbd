"""The values that a step computes, to compare two ways of computing it."""

import numpy as np
import tensorflow as tf

from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.training.chunks import compute_in_chunks
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.step import compute_at_once, sum_over_replicas
from tests.conftest import two_replicas

KEY = 1234


def step_values(model, features, chunk_size=0, key=KEY):
    """Returns loss, gradients and metrics, summed over the replicas; chunk size 0: whole."""
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    arguments = (model, features, tf.convert_to_tensor(key, tf.int64), tf.constant(1.0 / replicas))
    if chunk_size:
        loss, gradients, outputs = compute_in_chunks(*arguments, chunk_size)
    else:
        loss, gradients, outputs = compute_at_once(*arguments)
    gradients = [
        tf.zeros_like(v) if g is None else tf.convert_to_tensor(g)
        for g, v in zip(gradients, model.trainable_variables, strict=True)
    ]
    metrics = tf.nest.flatten({name: output.metrics for name, output in outputs.items()})
    return sum_over_replicas([loss / replicas, *gradients, *metrics])


def step_of_any_size(model, features, **options):
    """Returns a step in chunks of 3 for batches of unknown sizes and lengths.

    Only the size of a teacher's vectors is known, as in a training.
    """

    def unknown(name, value):
        if isinstance(value, dict):
            return {key: unknown(key, each) for key, each in value.items()}
        size = [value.shape[-1]] if name.endswith("_vector") else [None]
        return tf.TensorSpec([None] * (len(value.shape) - 1) + size, value.dtype)

    return tf.function(
        lambda batch: step_values(model, batch, 3),
        input_signature=[unknown("", features)],
        autograph=False,
        **options,
    )


def measure_bytes(encoder, objectives, batch, chunk_size=0):
    """Returns the bytes of temporary buffers of a compiled step, by XLA's own account."""
    from official_cmlm.training import jax_loop
    from official_cmlm.training.step_module import lower

    model = MultiObjectiveModel(SentenceEncoderModel(encoder), objectives, static_shapes=True)

    def step(features):
        # With a constant key the compiler draws masks itself, and keeps them in the program.
        key = next(iter(features.values()))["key"][0]
        _, *gradients = step_values(model, features, chunk_size, key)
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.assign_sub(0.1 * gradient)

    jax = jax_loop._load()
    exported = jax_loop._as_exported(jax, lower(step, batch), tf.nest.flatten(batch))
    arguments = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in exported.in_avals]
    compiled = jax.jit(exported.call).lower(*arguments).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def check_equal(actual, expected, rtol=1e-5):
    """Checks that values are the same; the first, the loss, is not near 0.

    Gradients of the keys' biases are 0 but for rounding, some 1e-7.
    """
    assert float(expected[0]) > 0.1
    for got, value in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=rtol, atol=rtol * np.abs(value).max() + 5e-7)


def halves_of(batch):
    """Returns the two halves of a batch."""
    return [tf.nest.map_structure(lambda x, i=i: tf.split(x, 2, axis=0)[i], batch) for i in (0, 1)]


def distribute(strategy, batch):
    """Returns a batch of which each of two replicas has a half."""
    halves = halves_of(batch)
    return strategy.experimental_distribute_values_from_function(
        lambda context: halves[context.replica_id_in_sync_group]
    )


def replica_values(single, whole, make_model, chunk_size=0):
    """Returns the values of each of two replicas with half of a batch each.

    Args:
      single: a model of one device, whose weights the replicas get.
      whole: the batch.
      make_model: makes the model of the replicas.
      chunk_size: as for `step_values`.
    """
    strategy = two_replicas()
    with strategy.scope():
        mirrored = make_model()
    mirrored.set_weights(single.get_weights())
    # Not traced: that takes longer than the step.
    arguments = (mirrored, distribute(strategy, whole), chunk_size)
    values = strategy.run(step_values, args=arguments)
    return [
        [strategy.experimental_local_results(value)[replica].numpy() for value in values]
        for replica in range(2)
    ]
