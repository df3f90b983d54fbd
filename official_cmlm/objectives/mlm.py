"""Masked language modelling of single segments: the paper's baseline "BERT (CC)" (CMLM §3.1)."""

import dataclasses

import tensorflow as tf
import tf_keras

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import Segments, Source, SpecialIds
from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    Encode,
    Objective,
    ObjectiveConfig,
    Prediction,
    Vectors,
    register,
)


@dataclasses.dataclass
class MlmConfig(ObjectiveConfig):
    """Settings of `mlm`.

    Attributes:
      masking_rate: share of the real tokens to predict. Default 0.15 (Devlin et al. 2019, §3.1).
      max_predictions: most predictions a sequence. Default 76: 0.15 of 512, as BERT's release.
    """

    masking_rate: float = 0.15
    max_predictions: int = 76


def check_masking(rate: float, max_predictions: int, where: str) -> None:
    """Raises `UserError` unless 0 < rate ≤ 1 and `max_predictions` ≥ 1."""
    if not 0 < rate <= 1:
        raise UserError(f"{where}.masking_rate must be in (0, 1], got {rate}")
    if max_predictions < 1:
        raise UserError(f"{where}.max_predictions must be at least 1, got {max_predictions}")


def predict_masked(head: tf_keras.layers.Layer, sequence: tf.Tensor, masked: dict) -> Prediction:
    """Loss and accuracy per masked token.

    Args:
      head: Model Garden's `MaskedLM`.
      sequence: `[batch, seq, hidden]`.
      masked: features that `MaskTokens` made.
    """
    logits = head(sequence, masked_positions=masked["masked_lm_positions"])
    total, correct, weight = masked_cross_entropy(
        logits, masked["masked_lm_ids"], masked["masked_lm_weights"]
    )
    metrics = {"masked_token_loss": (total, weight), "masked_token_accuracy": (correct, weight)}
    return Prediction(total, weight, metrics)


def num_masked(*masked: dict) -> tf.Tensor:
    """How many tokens `predict_masked` predicts: float32 scalar."""
    return tf.add_n([tf.reduce_sum(part["masked_lm_weights"]) for part in masked])


@register("mlm")
class Mlm(Objective):
    """Predicts masked tokens of a segment from the segment alone."""

    config_class = MlmConfig
    metric_names = ("masked_token_loss", "masked_token_accuracy")

    def __init__(
        self, config: MlmConfig, encoder: SentenceEncoderModel, head: tf_keras.layers.Layer
    ) -> None:
        super().__init__(config, encoder, head)
        self.head = head

    @classmethod
    def check(cls, config: MlmConfig, encoder_config: object, where: str) -> None:
        super().check(config, encoder_config, where)
        check_masking(config.masking_rate, config.max_predictions, where)

    @classmethod
    def view(cls, config: MlmConfig, data: DataConfig, source: Source) -> Segments:
        return Segments(data.segment, data.seq_length, source.special)

    @classmethod
    def needs_language_model_head(cls, config: MlmConfig) -> bool:
        return True

    @classmethod
    def augments(cls, config: MlmConfig, special: SpecialIds) -> list[Augment]:
        return [
            MaskTokens(
                "segment", "segment_masked", config.masking_rate, config.max_predictions, special
            )
        ]

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        masked = features["segment_masked"]
        sequence = encode(masked, "segment_masked")["sequence_output"]
        return predict_masked(self.head, sequence, masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        return num_masked(features["segment_masked"])
