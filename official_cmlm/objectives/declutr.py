"""DeCLUTR: spans of one document must be nearer than spans of other documents; with MLM (§3).

Every document gives A anchors with P positives each; an anchor's counterpart is the mean of its
positives' vectors. The loss is NT-Xent over the 2AN vectors of N documents, in both directions,
plus the masked language model's loss on the anchors. In training the anchors that are compared are
the masked ones, unless `contrastive_on_masked_anchors` is false; positives are never masked.
"""

import dataclasses
import functools
from typing import Annotated

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least, between
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.document_spans import SAMPLINGS, Spans, least_tokens
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import RecordFacts, SpecialIds
from official_cmlm.losses.nt_xent import nt_xent
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
    contrastive_output,
)
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    TwoTermConfig,
    at_predictions,
    end_to_end,
    num_masked,
    predict_masked,
)


@dataclasses.dataclass
class DeclutrConfig(TwoTermConfig):
    """Settings of `declutr`, besides those of masking, which apply to the anchors.

    Attributes:
      temperature: divisor of the cosines. Default 0.05 (§4.1).
      num_anchors: A, anchors a document. Default 2 (§4.1, Figure 2a).
      num_positives: P, positives an anchor. Default 2 (§4.1, Figure 2b).
      min_span_length, max_span_length: ℓmin and ℓmax in tokens. Defaults 32 and 512 (§3.2); two
        tokens of the longest span are special.
      sampling: where positives lie: `all` (default), `adjacent` or `subsuming` (Figure 2c).
      anchor_beta, positive_beta: α and β of the Beta distributions of the lengths, whole numbers.
        Defaults [4, 2] and [2, 4] (§3.2: "skews anchor sampling towards longer spans" and positives
        to shorter ones).
      min_document_tokens: documents of fewer tokens give no example. 0 (default): 2 · A · ℓmax, the
        least that the anchors need. Comparisons of several A need one value for all.
      contrastive_on_masked_anchors: whether the anchors of the contrastive loss are the masked ones
        of the masked-token loss, which one pass then encodes. Default true: the reference code
        masks anchors in place, and the published models were trained by it. False: anchors are
        encoded once as they are and once masked, which takes about half as many tokens more a step.
        Validation always compares plain anchors (the reference code has no loss outside training);
        without a masked-token loss nothing is masked.
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
    anchor_beta: Annotated[list[int], between(1, 1024)] = dataclasses.field(
        default_factory=lambda: [4, 2]
    )
    positive_beta: Annotated[list[int], between(1, 1024)] = dataclasses.field(
        default_factory=lambda: [2, 4]
    )
    min_document_tokens: Annotated[int, at_least(0)] = 0
    contrastive_on_masked_anchors: bool = True
    mlm_weight: Annotated[float, at_least(0)] = 1.0

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        for name in ("anchor_beta", "positive_beta"):
            if len(getattr(self, name)) != 2:
                raise UserError(f"{where}.{name} is {getattr(self, name)}; give [α, β]")
        least = least_tokens(self.num_anchors, self.max_span_length)
        if 0 < self.min_document_tokens < least:
            raise UserError(
                f"{where}.min_document_tokens is {self.min_document_tokens}, {self.num_anchors} "
                f"anchors of up to {self.max_span_length} tokens need {least}; raise it, or set 0"
            )
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

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        if data.seq_length < self.max_span_length:
            raise UserError(
                f"{where}.seq_length is {data.seq_length}, declutr.max_span_length "
                f"{self.max_span_length} needs at least as much; make them equal"
            )

    def min_batch_size(self) -> int:
        # Another anchor of the same document is a negative too; MLM alone needs none.
        return 1 if self.num_anchors > 1 or not self.contrastive_weight else 2

    def view(self, data: DataConfig, facts: RecordFacts) -> Spans:
        return Spans(
            self.num_anchors,
            self.num_positives,
            self.min_span_length,
            self.max_span_length,
            self.sampling,
            facts.special,
            tuple(self.anchor_beta),
            tuple(self.positive_beta),
            self.min_document_tokens,
        )

    def augments(self, special: SpecialIds) -> list[Augment]:
        if not self.mlm_weight:
            return []
        return [self.mask_tokens(f"anchor_{a}", special, stream=a) for a in range(self.num_anchors)]


@register("declutr")
class Declutr(Objective):
    """NT-Xent over spans of documents, and MLM on the anchors."""

    config_class = DeclutrConfig
    metric_directions = CONTRASTIVE_METRICS | MASKED_METRICS
    in_batch_metrics = frozenset(CONTRASTIVE_METRICS)

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        """Returns anchors, and the means of their positives, in the same order."""
        if not self.config.contrastive_weight:
            return {}
        num_anchors, num_positives = self.config.num_anchors, self.config.num_positives
        if self._compares_masked(encode):
            anchors = self._encode_masked(features, encode)["default"]
        else:
            anchors = encode(
                [features[f"anchor_{a}"] for a in range(num_anchors)], "anchors", views=num_anchors
            )["default"]
        names = [f"positive_{a}_{p}" for a in range(num_anchors) for p in range(num_positives)]
        positives = encode([features[n] for n in names], "positives", views=len(names))["default"]
        width = positives.shape[-1]
        # [anchors, positives of each, documents, hidden], in the order of the names.
        by_anchor = tf.reshape(
            positives, [num_anchors, num_positives, tf.shape(features["key"])[0], width]
        )
        return {
            "anchors": anchors,
            "positives": tf.reshape(tf.reduce_mean(by_anchor, axis=1), [-1, width]),
            **self.config.texts(end_to_end([features[f"anchor_{a}"] for a in range(num_anchors)])),
        }

    def compare(self, vectors: Vectors) -> ObjectiveOutput | None:
        if not self.config.contrastive_weight:
            return None
        loss = functools.partial(
            nt_xent, temperature=self.config.temperature, negatives="both_views"
        )
        reduction = self.config.reduction(self.static_shapes)
        spans = vectors["anchors"], vectors["positives"], vectors.get("texts")
        contrast = contrastive_output(*spans, loss, True, reduction)
        return dataclasses.replace(contrast, loss=self.config.contrastive_weight * contrast.loss)

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction | None:
        if not self.config.mlm_weight:
            return None
        outputs = self._encode_masked(features, encode)["sequence_output"]
        masked = end_to_end(self._get_masked_anchors(features))
        if self._compares_masked(encode):
            positions = masked["masked_lm_positions"]
            outputs = tf.gather(outputs, positions, axis=1, batch_dims=1)
        return predict_masked(self, outputs, masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        if not self.config.mlm_weight:
            return tf.constant(0.0)
        return num_masked(*self._get_masked_anchors(features))

    def _compares_masked(self, encode: Encode) -> bool:
        """Returns whether one pass over the masked anchors serves both losses: in training only."""
        config = self.config
        both = config.mlm_weight and config.contrastive_weight
        return bool(both and config.contrastive_on_masked_anchors and encode.training)

    def _encode_masked(self, features: dict, encode: Encode) -> dict[str, tf.Tensor]:
        """Returns all masked anchors' outputs: at all tokens if their vectors are compared too."""
        both = self._compares_masked(encode)
        masked = self._get_masked_anchors(features)
        inputs = masked if both else [at_predictions(m) for m in masked]
        return encode(inputs, "anchors_masked", views=len(masked), with_tokens=both)

    def _get_masked_anchors(self, features: dict) -> list[dict]:
        return [features[f"anchor_{a}_masked"] for a in range(self.config.num_anchors)]
