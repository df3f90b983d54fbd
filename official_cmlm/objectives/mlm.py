"""Masked language modelling of single segments: the paper's baseline "BERT (CC)" (CMLM §3.1)."""

import dataclasses

import tensorflow as tf
import tf_keras

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import Segments, Source, SpecialIds
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    Encode,
    Objective,
    ObjectiveConfig,
    Prediction,
    Vectors,
    register,
)
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    at_predictions,
    check_masking,
    num_masked,
    predict_masked,
)


@dataclasses.dataclass
class MlmConfig(ObjectiveConfig):
    """Settings of `mlm`.

    Attributes:
      masking_rate: share of the real tokens to predict. Default 0.15 (Devlin et al. 2019, §3.1).
      max_predictions: most predictions a sequence. Default 76: 0.15 of 512, as BERT's release.
      max_predictions_share: with static shapes (`task.static_shapes`), the share of a batch's
        prediction slots at which logits are computed; masked tokens beyond it are ignored. Default
        1: all slots.
    """

    masking_rate: float = 0.15
    max_predictions: int = 76
    max_predictions_share: float = 1.0

    def check(self, encoder_config: object, where: str) -> None:
        super().check(encoder_config, where)
        check_masking(self, where)

    def view(self, data: DataConfig, source: Source) -> Segments:
        return Segments(data.segment, data.seq_length, source.special)

    def needs_language_model_head(self) -> bool:
        return True

    def augments(self, special: SpecialIds) -> list[Augment]:
        return [
            MaskTokens(
                "segment", "segment_masked", self.masking_rate, self.max_predictions, special
            )
        ]


@register("mlm")
class Mlm(Objective):
    """Predicts masked tokens of a segment from the segment alone."""

    config_class = MlmConfig
    metric_directions = MASKED_METRICS

    def __init__(
        self, config: MlmConfig, encoder: SentenceEncoderModel, head: tf_keras.layers.Layer
    ) -> None:
        super().__init__(config, encoder, head)
        self.head = head

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        masked = features["segment_masked"]
        outputs = encode(at_predictions(masked), "segment_masked")["sequence_output"]
        return predict_masked(self, outputs, masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        return num_masked(self, features["segment_masked"])
