"""One update: the same for any number of replicas and chunks, and after a restart."""

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
    """Sums over a replica's share of a batch: name -> float32 scalar.

    Args:
      features: group -> features.
      sequences: group -> the sequences of its view. Their tokens are counted, special tokens
        included; what objectives add to the view, as masked copies, is the same text again.
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
    """A sum over steps and replicas for each of `NAMES`."""
    return [tf_keras.metrics.Sum(name) for name in NAMES]


class FiniteMean(tf_keras.metrics.Mean):
    """A mean over steps that leaves out values that are not finite; NaN if there are no others.

    Under a loss scale gradients overflow as a matter of course, and such a step is left out too.
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
# What tells dropout's use of the seed from the data's.
_DROPOUT = 0x64726F70


def train_step(
    model: MultiObjectiveModel,
    optimizer: tf_keras.optimizers.Optimizer,
    features: dict[str, dict],
    seed: int,
    chunk_size: int = 0,
) -> tuple[tf.Tensor, tf.Tensor, dict[str, ObjectiveOutput]]:
    """Computes the gradients of this replica's share of a batch and applies those of all.

    Dropout masks are a function of (seed, the optimizer's count of steps, row of the global batch).
    Gradients are clipped by the norm of the global batch's. A step whose loss is not finite is not
    applied, and none after it; `model.guard` remembers it.

    Args:
      model: what is trained.
      optimizer: with its count of steps, also a loss-scale optimizer.
      features: group -> features.
      seed: of dropout.
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
    """Loss, gradients of `factor` times it, and outputs, all of a batch at once."""
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
