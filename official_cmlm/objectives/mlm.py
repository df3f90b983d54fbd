"""Masked language modelling of single segments: the paper's baseline "BERT (CC)" (CMLM §3.1)."""

import dataclasses

import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import RecordFacts, Segments, SpecialIds
from official_cmlm.objectives.base import Encode, Objective, Prediction, Vectors, register
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    MaskingConfig,
    at_predictions,
    num_masked,
    predict_masked,
)


@dataclasses.dataclass
class MlmConfig(MaskingConfig):
    """Settings of `mlm`: those of masking."""

    def view(self, data: DataConfig, facts: RecordFacts) -> Segments:
        return Segments(data.segment, data.seq_length, facts.special)

    def augments(self, special: SpecialIds) -> list[Augment]:
        return [self.mask_tokens("segment", special)]


@register("mlm")
class Mlm(Objective):
    """The loss of predicting masked tokens of a segment from the segment alone."""

    config_class = MlmConfig
    metric_directions = MASKED_METRICS
    is_language_model = True

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        masked = features["segment_masked"]
        outputs = encode(at_predictions(masked), "segment_masked")["sequence_output"]
        return predict_masked(self, outputs, masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        return num_masked(features["segment_masked"])
