"""Sums, clips and applies the replicas' gradients; all replicas make the same update."""

from collections.abc import Sequence

import tensorflow as tf
import tf_keras
from official.modeling.optimization import ema_optimizer

Gradients = list[tf.Tensor | None]


def summed_over_replicas(gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> Gradients:
    """The gradients of the global batch; entries that are None on every replica stay None."""
    present = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    context = tf.distribute.get_replica_context()
    if context is not None and context.num_replicas_in_sync > 1 and present:
        present = context.all_reduce(tf.distribute.ReduceOp.SUM, present)
    summed = iter(present)
    return [None if g is None else next(summed) for g in gradients]


def clipped(gradients: Gradients, clip_norm: float) -> tuple[Gradients, tf.Tensor]:
    """Clips gradients by their global norm; `clip_norm` 0 leaves them unchanged.

    Model Garden's AdamW clips each replica's gradients before it sums them, so its update depends
    on the number of replicas. Here the norm is that of the global batch.

    Returns:
      (gradients, their float32 norm before clipping).
    """
    present = [g for g in gradients if g is not None]
    norm = tf.linalg.global_norm([tf.cast(g, tf.float32) for g in present])
    if clip_norm > 0:
        # The same as tf.clip_by_global_norm, which would compute the norm a second time.
        scale = clip_norm / tf.maximum(norm, clip_norm)
        gradients = [None if g is None else g * tf.cast(scale, g.dtype) for g in gradients]
    return gradients, norm


def apply_summed(
    optimizer: tf_keras.optimizers.Optimizer,
    gradients: Gradients,
    variables: Sequence[tf.Variable],
) -> None:
    """Applies gradients that were already summed over the replicas."""
    pairs = [(g, v) for g, v in zip(gradients, variables) if g is not None]
    if isinstance(optimizer, ema_optimizer.ExponentialMovingAverage):
        # This optimizer always sums over the replicas; equal shares add up to the sum again.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        optimizer.apply_gradients([(g / replicas, v) for g, v in pairs])
    elif isinstance(_inner(optimizer), tf_keras.optimizers.legacy.Optimizer):
        optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
    else:
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)


def optimizer_variables(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """All variables of an optimizer and of the optimizers that it wraps, slots included."""
    found: list[tf.Variable] = []
    wrapped = optimizer
    while wrapped is not None:
        found.extend(wrapped.variables())
        wrapped = getattr(wrapped, "inner_optimizer", getattr(wrapped, "_optimizer", None))
    return found


def clip_norm_of(optimizer: tf_keras.optimizers.Optimizer) -> float:
    """`gradient_clip_norm` of Model Garden's AdamW; 0 for other optimizers."""
    inner = _inner(optimizer)
    if isinstance(inner, ema_optimizer.ExponentialMovingAverage):
        inner = inner._optimizer
    return float(getattr(inner, "gradient_clip_norm", 0.0) or 0.0)


def _inner(optimizer: tf_keras.optimizers.Optimizer) -> tf_keras.optimizers.Optimizer:
    """The optimizer inside a loss-scale optimizer, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)
