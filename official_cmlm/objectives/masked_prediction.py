"""The masked-token loss that several objectives share: logits at masked positions only.

A batch has as many prediction slots per row as its longest row can need. Most rows use fewer, and
the logits of a slot cost as much as one or two layers of a small encoder.
"""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds
from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.losses.vocabulary_blocks import cross_entropy_in_blocks
from official_cmlm.objectives.base import HIGHER, LOWER, Objective, ObjectiveConfig, Prediction
from official_cmlm.validation import between

MASKED_METRICS = {"masked_token_loss": LOWER, "masked_token_accuracy": HIGHER}


@dataclasses.dataclass
class MaskingConfig(ObjectiveConfig):
    """Settings of an objective that predicts masked tokens.

    Attributes:
      masking_rate: predictions of a sequence by its length, special tokens included. Default 0.15
        (Devlin et al. 2019, §3.1).
      max_predictions: most predictions a sequence. Default 76: 0.15 of 512, as BERT's release.
      max_predictions_share: with static shapes (`task.static_shapes`), the share of a batch's
        prediction slots at which logits are computed; masked tokens beyond it are ignored. With
        `task.chunk_size`, of a chunk's: a chunk may ignore tokens that the whole batch would not.
        Default 1: all slots.
      vocabulary_block_size: entries of the vocabulary whose logits are computed at a time, forward
        and backward; 0 (default): all. Loss, gradients and accuracy do not change, but logits
        `[predictions, vocabulary]` are never in memory whole. The backward pass computes them
        again: 4 products of their size instead of 3.
    """

    masking_rate: Annotated[float, between(0, 1, above_low=True)] = 0.15
    max_predictions: Annotated[int, between(1, 1 << 20)] = 76
    max_predictions_share: Annotated[float, between(0, 1, above_low=True)] = 1.0
    vocabulary_block_size: Annotated[int, between(0, 1 << 24)] = 0

    def masked_copy(self, sequence: str, special: SpecialIds, stream: int = 0) -> MaskTokens:
        """What adds `SEQUENCE_masked` to a batch; equal streams mask equally."""
        return MaskTokens(
            sequence,
            f"{sequence}_masked",
            self.masking_rate,
            self.max_predictions,
            special,
            stream=stream,
        )


def at_predictions(masked: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The encoder's inputs for features of `MaskTokens`: outputs are read at the slots only."""
    return {**masked, "output_positions": masked["masked_lm_positions"]}


def predict_masked(objective: Objective, outputs: tf.Tensor, masked: dict) -> Prediction:
    """Loss and accuracy per masked token.

    Args:
      objective: its `head` is a `LanguageModelHead`; where it must have static shapes, its config's
        `max_predictions_share` says at how many slots logits are computed, and its
        `vocabulary_block_size` of how many entries at a time.
      outputs: what the slots are predicted from, float `[batch, slots, hidden]`.
      masked: features that `MaskTokens` made.
    """
    weights = tf.reshape(masked["masked_lm_weights"], [-1])
    slots = _slots(objective, weights)
    flat = tf.reshape(outputs, [1, -1, outputs.shape[-1]])
    ids = tf.gather(tf.reshape(masked["masked_lm_ids"], [-1]), slots)
    weights = tf.gather(weights, slots)
    block_size = objective.config.vocabulary_block_size
    if block_size:
        factors = objective.head(flat, masked_positions=slots[tf.newaxis], factors=True)
        total, correct, weight = cross_entropy_in_blocks(*factors, ids, weights, block_size)
    else:
        logits = objective.head(flat, masked_positions=slots[tf.newaxis])[0]
        total, correct, weight = masked_cross_entropy(logits, ids, weights)
    metrics = {"masked_token_loss": (total, weight), "masked_token_accuracy": (correct, weight)}
    return Prediction(total, weight, metrics)


def num_masked(objective: Objective, *masked: dict) -> tf.Tensor:
    """How many tokens `predict_masked` predicts of these features end to end: float32 scalar."""
    weights = tf.concat([tf.reshape(part["masked_lm_weights"], [-1]) for part in masked], axis=0)
    return tf.reduce_sum(tf.gather(weights, _slots(objective, weights)))


def _slots(objective: Objective, weights: tf.Tensor) -> tf.Tensor:
    """Which of the flat slots `[batch · slots]` get logits: int32 `[k]`."""
    if not objective.static_shapes:
        return tf.cast(tf.where(weights > 0)[:, 0], tf.int32)
    share = objective.config.max_predictions_share
    if share == 1:
        return tf.range(tf.size(weights))
    count = tf.cast(tf.math.ceil(share * tf.cast(tf.size(weights), tf.float64)), tf.int32)
    return tf.argsort(weights, direction="DESCENDING", stable=True)[:count]
