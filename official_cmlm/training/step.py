"""One training step; its update does not depend on replicas, chunks or restarts.

`train_step` stores the data position, computes the gradients of this replica's share of the batch,
sums and clips those of all replicas, and applies them unless the step is non-finite.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf
import tf_keras
from official.modeling.optimization import ema_optimizer

from official_cmlm.inputs.hashing import fold
from official_cmlm.objectives import ObjectiveOutput
from official_cmlm.objectives.base import weighted_sum
from official_cmlm.training.chunks import Gradients, compute_in_chunks
from official_cmlm.training.model import MultiObjectiveModel

# This constant separates the random numbers of dropout from those of the data.
_DROPOUT = 0x64726F70


def train_step(
    model: MultiObjectiveModel,
    optimizer: tf_keras.optimizers.Optimizer,
    features: dict[str, dict],
    seed: int,
    chunk_size: int = 0,
) -> tuple[tf.Tensor, tf.Tensor, dict[str, ObjectiveOutput]]:
    """Computes the gradients of this replica's share of a batch and applies those of all replicas.

    Dropout masks are a function of (seed, the optimizer's count of steps, row of the global batch).
    Gradients are clipped by their norm over the global batch. A non-finite step is not applied, nor
    is any step after it; `model.guard` stores it.

    Args:
      model: the model; its `data_positions` store the position of each batch.
      optimizer: may be a loss-scale optimizer; its `iterations` count the steps.
      features: group -> features.
      seed: seed of the dropout masks.
      chunk_size: examples to compute at a time; 0 is all.

    Returns:
      This replica's part of the loss (its mean over replicas is the loss), the gradients' norm
      before clipping, and the objectives' outputs.
    """
    features = model.data_positions.take(features)
    step_key = fold(fold(tf.constant(seed, tf.int64), _DROPOUT), optimizer.iterations)
    scaling = isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer)
    share = tf.constant(1.0 / tf.distribute.get_strategy().num_replicas_in_sync)
    # Each replica's loss is a part of the global mean: gradients are summed.
    factor = optimizer.get_scaled_loss(share) if scaling else share
    if chunk_size:
        loss, gradients, outputs = compute_in_chunks(model, features, step_key, factor, chunk_size)
    else:
        loss, gradients, outputs = compute_at_once(model, features, step_key, factor)
    gradients = optimizer.get_unscaled_gradients(gradients) if scaling else gradients
    total, *sums = sum_over_replicas([loss, *gradients])
    sums, norm = clip(sums, clip_norm_of(optimizer))
    allowed = model.guard.allows(total * share, norm, scaling, optimizer.iterations)
    pairs = [(g, v) for g, v in zip(sums, model.trainable_variables) if g is not None]
    variables = [variable for _, variable in pairs]
    apply_if(
        allowed,
        lambda values: apply_summed(optimizer, values, variables),
        [gradient for gradient, _ in pairs],
    )
    return loss, norm, outputs


def compute_at_once(
    model: MultiObjectiveModel,
    features: dict[str, dict],
    step_key: tf.Tensor,
    factor: tf.Tensor,
) -> tuple[tf.Tensor, Gradients, dict[str, ObjectiveOutput]]:
    """Computes loss, gradients of `factor` times the loss, and outputs, without chunks."""
    chosen = {name: objective.config for name, objective in model.objectives.items()}
    with tf.GradientTape() as tape:
        outputs = model(features, training=True, step_key=step_key)
        loss = weighted_sum(outputs, chosen)
        scaled = loss * factor
    return loss, tape.gradient(scaled, model.trainable_variables), outputs


def sum_over_replicas(gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> Gradients:
    """Returns the gradients of the global batch; None on every replica stays None."""
    present = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    context = tf.distribute.get_replica_context()
    if context is not None and context.num_replicas_in_sync > 1 and present:
        present = context.all_reduce(tf.distribute.ReduceOp.SUM, present)
    sums = iter(present)
    return [None if g is None else next(sums) for g in gradients]


def clip(gradients: Gradients, clip_norm: float) -> tuple[Gradients, tf.Tensor]:
    """Clips gradients by their global norm; `clip_norm` 0 leaves them unchanged.

    Model Garden's AdamW clips each replica's gradients before it sums them, so its update depends
    on the number of replicas. Here the norm is that of the global batch.

    Returns:
      (gradients, their float32 norm before clipping).
    """
    present = [g for g in gradients if g is not None]
    norm = tf.linalg.global_norm([tf.cast(g, tf.float32) for g in present])
    if clip_norm > 0:
        # This equals tf.clip_by_global_norm, which would compute the norm a second time.
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


def apply_if(
    condition: tf.Tensor, apply: Callable[[list[tf.Tensor]], None], values: list[tf.Tensor]
) -> None:
    """Calls `apply(values)` where `condition` holds, in a replica's context.

    Args:
      condition: bool scalar, equal on all replicas.
      apply: may use merge calls, as optimizers do, which a plain `tf.cond` does not allow.
      values: this replica's tensors; all else that `apply` uses must be equal on all replicas.
    """

    def across(
        strategy: tf.distribute.Strategy, condition: tf.Tensor, values: list[tf.Tensor]
    ) -> None:
        def every_replica() -> tf.Tensor:
            strategy.extended.call_for_each_replica(apply, args=(values,))
            return tf.constant(True)

        first = strategy.experimental_local_results(condition)[0]
        tf.cond(first, every_replica, lambda: tf.constant(False))

    def here() -> tf.Tensor:
        apply(values)
        return tf.constant(True)

    # Several GPUs under XLA have no merge calls; optimizers update each replica separately.
    if not tf.distribute.get_strategy().extended._use_merge_call():
        tf.cond(condition, here, lambda: tf.constant(False))
        return
    tf.distribute.get_replica_context().merge_call(across, args=(condition, values))


def optimizer_variables(optimizer: tf_keras.optimizers.Optimizer) -> list[tf.Variable]:
    """Returns all variables of an optimizer and of those that it wraps, slots included."""
    variables: list[tf.Variable] = []
    wrapped = optimizer
    while wrapped is not None:
        variables.extend(wrapped.variables())
        wrapped = getattr(wrapped, "inner_optimizer", getattr(wrapped, "_optimizer", None))
    return variables


def clip_norm_of(optimizer: tf_keras.optimizers.Optimizer) -> float:
    """Returns `gradient_clip_norm` of Model Garden's AdamW; 0 for other optimizers."""
    inner = _inner(optimizer)
    if isinstance(inner, ema_optimizer.ExponentialMovingAverage):
        inner = inner._optimizer
    return float(getattr(inner, "gradient_clip_norm", 0.0) or 0.0)


def _inner(optimizer: tf_keras.optimizers.Optimizer) -> tf_keras.optimizers.Optimizer:
    """Returns the optimizer inside a loss-scale optimizer, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


EXAMPLES, TOKENS, POSITIONS = "examples", "tokens", "positions"
NAMES = (EXAMPLES, TOKENS, POSITIONS)


def batch_counts(
    features: dict[str, dict], sequences: Mapping[str, Collection[str]]
) -> dict[str, tf.Tensor]:
    """Counts a replica's share of a batch: name of the count -> float32 scalar.

    Tokens are counted by `input_mask`, special tokens included; positions include padding.

    Args:
      features: group -> features; the counts are sums over the groups.
      sequences: group -> the sequences of its view. Features that objectives add to the view,
        such as masked copies, are the same text and not counted again.
    """
    counts = dict.fromkeys(NAMES, tf.constant(0.0))
    for group, batch in features.items():
        counts[EXAMPLES] += tf.cast(tf.shape(batch["key"])[0], tf.float32)
        for name in sequences[group]:
            mask = batch[name]["input_mask"]
            counts[TOKENS] += tf.cast(tf.reduce_sum(mask), tf.float32)
            counts[POSITIONS] += tf.cast(tf.size(mask), tf.float32)
    return counts


def count_metrics() -> list[tf_keras.metrics.Metric]:
    """Returns a metric for each of `NAMES`: the sum over steps and replicas."""
    return [tf_keras.metrics.Sum(name) for name in NAMES]


class FiniteMean(tf_keras.metrics.Mean):
    """A mean over steps that ignores non-finite values; NaN if all values are non-finite.

    With loss scaling, gradients overflow now and then; the optimizer skips those steps too.
    """

    def update_state(
        self, values: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> tf.Operation | None:
        finite = tf.math.is_finite(values)
        weight = tf.cast(finite, self.dtype)
        if sample_weight is not None:
            weight *= tf.cast(sample_weight, self.dtype)
        return super().update_state(tf.where(finite, values, 0.0), sample_weight=weight)

    def result(self) -> tf.Tensor:
        # Variables that are summed over replicas at each read divide only as tensors.
        return tf.convert_to_tensor(self.total) / tf.convert_to_tensor(self.count)


GRADIENT_NORM = "gradient_norm"
