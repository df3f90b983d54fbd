"""One training step; its update does not depend on replicas, chunks or restarts."""

from collections.abc import Collection, Mapping

import tensorflow as tf
import tf_keras

from official_cmlm.inputs.hashing import fold
from official_cmlm.objectives import ObjectiveConfig, ObjectiveOutput
from official_cmlm.training import gradients
from official_cmlm.training.chunks import chunked_gradients
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.non_finite import apply_if

EXAMPLES, TOKENS, POSITIONS = "examples", "tokens", "positions"
NAMES = (EXAMPLES, TOKENS, POSITIONS)


def batch_counts(
    features: dict[str, dict], sequences: Mapping[str, Collection[str]]
) -> dict[str, tf.Tensor]:
    """Counts a replica's share of a batch: name of the count -> float32 scalar.

    Tokens are counted by `input_mask`, special tokens included; positions include padding.

    Args:
      features: group -> features; the counts are sums over the groups.
      sequences: objective -> the sequences of its view. What objectives add to the view, such as
        masked copies, is the same text and not counted again.
    """
    counts = dict.fromkeys(NAMES, tf.constant(0.0))
    for names, batch in features.items():
        counts[EXAMPLES] += tf.cast(tf.shape(batch["key"])[0], tf.float32)
        # The objectives of a group share its view.
        for name in sequences[names.split("+")[0]]:
            mask = batch[name]["input_mask"]
            counts[TOKENS] += tf.cast(tf.reduce_sum(mask), tf.float32)
            counts[POSITIONS] += tf.cast(tf.size(mask), tf.float32)
    return counts


def count_metrics() -> list[tf_keras.metrics.Metric]:
    """A metric for each of `NAMES`: the sum over steps and replicas."""
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
        return self.total / self.count


GRADIENT_NORM = "gradient_norm"
# Separates the random numbers of dropout from those of the data.
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
      model: the model.
      optimizer: may be a loss-scale optimizer; its `iterations` count the steps.
      features: group -> features.
      seed: seed of the dropout masks.
      chunk_size: examples to compute at a time; 0 is all.

    Returns:
      This replica's part of the loss (its mean over replicas is the loss), the gradients' norm
      before clipping, and the objectives' outputs.
    """
    step_key = fold(fold(tf.constant(seed, tf.int64), _DROPOUT), optimizer.iterations)
    scaling = isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer)
    share = tf.constant(1.0 / tf.distribute.get_strategy().num_replicas_in_sync)
    # Each replica's loss is a part of the global mean: gradients are summed.
    factor = optimizer.get_scaled_loss(share) if scaling else share
    if chunk_size:
        loss, found, outputs = chunked_gradients(model, features, step_key, factor, chunk_size)
    else:
        loss, found, outputs = whole_gradients(model, features, step_key, factor)
    found = optimizer.get_unscaled_gradients(found) if scaling else found
    total, *summed = gradients.summed_over_replicas([loss, *found])
    summed, norm = gradients.clipped(summed, gradients.clip_norm_of(optimizer))
    allowed = model.guard.allows(total * share, norm, scaling, optimizer.iterations, features)
    pairs = [(g, v) for g, v in zip(summed, model.trainable_variables) if g is not None]
    variables = [variable for _, variable in pairs]
    apply_if(
        allowed,
        lambda values: gradients.apply_summed(optimizer, values, variables),
        [gradient for gradient, _ in pairs],
    )
    return loss, norm, outputs


def whole_gradients(
    model: MultiObjectiveModel,
    features: dict[str, dict],
    step_key: tf.Tensor,
    factor: tf.Tensor,
) -> tuple[tf.Tensor, gradients.Gradients, dict[str, ObjectiveOutput]]:
    """Computes loss, gradients of `factor` times the loss, and outputs, without chunks."""
    chosen = {name: objective.config for name, objective in model.objectives.items()}
    with tf.GradientTape() as tape:
        outputs = model(features, training=True, step_key=step_key)
        loss = weighted_sum(outputs, chosen)
        scaled = loss * factor
    return loss, tape.gradient(scaled, model.trainable_variables), outputs


def weighted_sum(
    outputs: Mapping[str, ObjectiveOutput], chosen: Mapping[str, ObjectiveConfig]
) -> tf.Tensor:
    """The task's loss: float32 scalar."""
    return tf.add_n([chosen[name].weight * output.loss for name, output in outputs.items()])
