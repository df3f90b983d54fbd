"""DeCLUTR: spans of one document must be nearer than spans of other documents; with MLM (§3).

Every document gives A anchors with P positives each; an anchor's counterpart is the mean of its
positives' vectors; NT-Xent over the 2AN vectors of N documents, in both directions, plus the masked
language model's loss on the anchors. The contrastive inputs are not masked.
"""

import dataclasses
from typing import Annotated

import tensorflow as tf
import tf_keras

from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.document_spans import SAMPLINGS, Spans
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import Source, SpecialIds
from official_cmlm.limits import OneOf, at_least, between
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    Encode,
    Objective,
    ObjectiveOutput,
    Prediction,
    Vectors,
    register,
)
from official_cmlm.objectives.contrastive import (
    CONTRASTIVE_METRICS,
    TEMPERATURE,
    check_weights,
    contrastive_output,
)
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    MaskingConfig,
    at_predictions,
    num_masked,
    predict_masked,
)


@dataclasses.dataclass
class DeclutrConfig(MaskingConfig):
    """Settings of `declutr`; those of masking are of the anchors, and

    Attributes:
      temperature: divisor of the cosines. Default 0.05 (§4.1).
      num_anchors: A, anchors a document. Default 2 (§4.1, Figure 2a).
      num_positives: P, positives an anchor. Default 2 (§4.1, Figure 2b).
      min_span_length, max_span_length: ℓmin and ℓmax in tokens. Defaults 32 and 512 (§3.2); of the
        longest span two tokens are special, as in the reference code.
      sampling: where positives lie: `all` (default), `adjacent` or `subsuming` (Figure 2c).
      mlm_weight: factor of the masked-token loss. Default 1 (§3.3); 0 leaves it out (Figure 3).
      contrastive_weight: factor of the contrastive loss. Default 1 (§3.3); 0 is the curve of MLM
        alone in Figure 3: spans are then not compared, and positives not encoded.
    """

    temperature: Annotated[float, TEMPERATURE] = 0.05
    num_anchors: Annotated[int, between(1, 1024)] = 2
    num_positives: Annotated[int, between(1, 1024)] = 2
    min_span_length: Annotated[int, at_least(1)] = 32
    max_span_length: Annotated[int, at_least(3)] = 512
    sampling: Annotated[str, OneOf(SAMPLINGS)] = "all"
    mlm_weight: Annotated[float, at_least(0)] = 1.0
    contrastive_weight: Annotated[float, at_least(0)] = 1.0

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        check_weights(self, where)
        if self.min_span_length > self.max_span_length - 2:
            raise UserError(
                f"{where}.max_span_length ({self.max_span_length}) must be at least 2 above "
                f"min_span_length ({self.min_span_length})"
            )
        if self.max_span_length > encoder_config.max_seq_length:
            raise UserError(
                f"{where}.max_span_length {self.max_span_length} is longer than the position "
                f"table ({encoder_config.max_seq_length}); shorten the spans or raise "
                "task.encoder.max_position_embeddings"
            )

    def check_records(self, data: DataConfig, source: Source, where: str) -> None:
        if data.seq_length < self.max_span_length:
            raise UserError(
                f"{where}.seq_length is {data.seq_length}, declutr.max_span_length "
                f"{self.max_span_length} needs at least as much; make them equal"
            )

    def min_batch_size(self) -> int:
        # Another anchor of the same document is a negative too; MLM alone needs none.
        return 1 if self.num_anchors > 1 or not self.contrastive_weight else 2

    def view(self, data: DataConfig, source: Source) -> Spans:
        return Spans(
            self.num_anchors,
            self.num_positives,
            self.min_span_length,
            self.max_span_length,
            self.sampling,
            source.special,
        )

    def needs_language_model_head(self) -> bool:
        return bool(self.mlm_weight)

    def augments(self, special: SpecialIds) -> list[Augment]:
        if not self.mlm_weight:
            return []
        return [self.masked_copy(f"anchor_{a}", special, stream=a) for a in range(self.num_anchors)]


@register("declutr")
class Declutr(Objective):
    """NT-Xent over spans of documents, and MLM on the anchors."""

    config_class = DeclutrConfig
    metric_directions = CONTRASTIVE_METRICS | MASKED_METRICS

    def __init__(
        self, config: DeclutrConfig, encoder: SentenceEncoderModel, head: tf_keras.layers.Layer
    ) -> None:
        super().__init__(config, encoder, head)
        self.head = head

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        """Anchors, and the means of their positives, in the same order."""
        if not self.config.contrastive_weight:
            return {}
        num_anchors, num_positives = self.config.num_anchors, self.config.num_positives
        names = [f"anchor_{a}" for a in range(num_anchors)] + [
            f"positive_{a}_{p}" for a in range(num_anchors) for p in range(num_positives)
        ]
        spans = _end_to_end([features[name] for name in names])
        vectors = encode(spans, "spans", views=len(names))["default"]
        # [spans, documents, hidden], in the order of the names.
        by_span = tf.reshape(vectors, [len(names), -1, vectors.shape[-1]])
        documents, width = tf.shape(by_span)[1], vectors.shape[-1]
        positives = tf.reshape(
            by_span[num_anchors:], [num_anchors, num_positives, documents, width]
        )
        return {
            "anchors": tf.reshape(by_span[:num_anchors], [-1, width]),
            "positives": tf.reshape(tf.reduce_mean(positives, axis=1), [-1, width]),
        }

    def compare(self, vectors: Vectors) -> ObjectiveOutput | None:
        if not self.config.contrastive_weight:
            return None
        contrast = contrastive_output(
            vectors["anchors"],
            vectors["positives"],
            temperature=self.config.temperature,
            negatives="both_views",
            bidirectional=True,
            summed=self.summed,
        )
        return dataclasses.replace(contrast, loss=self.config.contrastive_weight * contrast.loss)

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction | None:
        if not self.config.mlm_weight:
            return None
        masked = _end_to_end(self._masked(features))
        inputs = at_predictions(masked)
        outputs = encode(inputs, "anchors_masked", views=self.config.num_anchors)
        return predict_masked(self, outputs["sequence_output"], masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        if not self.config.mlm_weight:
            return tf.constant(0.0)
        return num_masked(self, *self._masked(features))

    @property
    def prediction_weight(self) -> float:
        return self.config.mlm_weight

    def _masked(self, features: dict) -> list[dict]:
        return [features[f"anchor_{a}_masked"] for a in range(self.config.num_anchors)]


def _end_to_end(batches: list[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """Several batches of the same features as one."""
    return {name: tf.concat([b[name] for b in batches], axis=0) for name in batches[0]}
