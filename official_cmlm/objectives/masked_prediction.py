"""The masked-token loss that several objectives share: logits at masked positions only.

A batch has as many prediction slots per row as its longest row can need. Most rows use fewer, and
the logits of a slot cost as much as one or two layers of a small encoder. Only where shapes must be
static (XLA, TPUs) are logits computed at all slots.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import at_least, between
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds
from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.losses.vocabulary_blocks import cross_entropy_in_blocks
from official_cmlm.objectives.base import HIGHER, LOWER, Objective, ObjectiveConfig, Prediction
from official_cmlm.objectives.in_batch import InBatchConfig

MASKED_METRICS = {"masked_token_loss": LOWER, "masked_token_accuracy": HIGHER}


@dataclasses.dataclass
class MaskingConfig(ObjectiveConfig):
    """Settings of an objective that predicts masked tokens.

    Attributes:
      masking_rate: number of predicted tokens as a share of the sequence's length, which counts
        special tokens. Default 0.15 (Devlin et al. 2019, §3.1).
      max_predictions: most predictions a sequence. Default 77: 0.15 of 512, rounded as in
        BERT's release.
      bernoulli_masking: whether each token is chosen with probability `masking_rate` (DeCLUTR's and
        DiffCSE's code). Default false: that share of each sequence, rounded, is chosen.
        `max_predictions` should then be well above the mean.
      vocabulary_block_size: entries of the vocabulary whose logits are computed at a time, forward
        and backward; 0 (default): all. Loss, gradients and accuracy do not change, but logits
        `[predictions, vocabulary]` are never in memory whole. The backward pass computes them
        again: 4 products of their size instead of 3.
    """

    masking_rate: Annotated[float, between(0, 1, above_low=True)] = 0.15
    max_predictions: Annotated[int, between(1, 1 << 20)] = 77
    bernoulli_masking: bool = False
    vocabulary_block_size: Annotated[int, between(0, 1 << 24)] = 0

    def mask_tokens(self, sequence: str, special: SpecialIds, stream: int = 0) -> MaskTokens:
        """Returns a function that adds `SEQUENCE_masked` to a batch; equal streams mask equally."""
        return MaskTokens(
            sequence,
            f"{sequence}_masked",
            self.masking_rate,
            self.max_predictions,
            special,
            stream=stream,
            bernoulli=self.bernoulli_masking,
        )

    def needs_language_model_head(self) -> bool:
        return bool(self.prediction_weight)


@dataclasses.dataclass
class TwoTermConfig(MaskingConfig, InBatchConfig):
    """Settings of a contrastive loss plus a loss of predicted tokens; a factor of 0 leaves one out.

    Attributes:
      contrastive_weight: factor of the contrastive loss. Default 1.
      prediction_field: name of the field with the factor of the predicted tokens' loss; a class
        variable.
    """

    contrastive_weight: Annotated[float, at_least(0)] = 1.0

    prediction_field: ClassVar[str] = "mlm_weight"

    @property
    def prediction_weight(self) -> float:
        """The factor of the predicted tokens' loss."""
        return getattr(self, self.prediction_field)

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if not (self.prediction_weight or self.contrastive_weight):
            raise UserError(
                f"{where}: {self.prediction_field} and contrastive_weight are both 0; set one of "
                "them above 0"
            )

    def method_data(self) -> dict[str, Any]:
        return super().method_data() if self.contrastive_weight else {}


def at_predictions(masked: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the encoder's inputs for features of `MaskTokens`: only slots' outputs are read."""
    return {**masked, "output_positions": masked["masked_lm_positions"]}


def end_to_end(batches: list[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """Joins several batches of the same features into one."""
    return {name: tf.concat([b[name] for b in batches], axis=0) for name in batches[0]}


def predict_masked(objective: Objective, outputs: tf.Tensor, masked: dict) -> Prediction:
    """Computes loss and accuracy per masked token.

    Args:
      objective: its `head` is a `LanguageModelHead`; its config's `vocabulary_block_size` says of
        how many entries of the vocabulary logits are computed at a time.
      outputs: what the slots are predicted from, float `[batch, slots, hidden]`.
      masked: features that `MaskTokens` made.
    """
    weights = tf.reshape(masked["masked_lm_weights"], [-1])
    slots = tf.range(tf.size(weights))
    if not objective.static_shapes:
        slots = tf.cast(tf.where(weights > 0)[:, 0], tf.int32)
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


def num_masked(*masked: dict) -> tf.Tensor:
    """Returns the number of masked tokens of these features: float32 scalar."""
    return tf.add_n([tf.reduce_sum(part["masked_lm_weights"]) for part in masked])
