"""Graded similarity: pairs with a score, as people give it to pairs of STS.

`cosine_similarity` brings the cosine of a pair's vectors to its score (Reimers and Gurevych 2019,
"Sentence-BERT", §3, the regression objective). `cosent` orders the pairs of a batch by their scores
(Su 2022), by the cosine or by the angle of AnglE (Li and Li 2024).
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, above
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.pair_views import GradedPairs
from official_cmlm.inputs.views import RecordFacts
from official_cmlm.losses.graded_similarity import angles, cosent, cosine_errors, cosines
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives.base import (
    LOWER,
    Encode,
    Objective,
    ObjectiveConfig,
    ObjectiveOutput,
    Prediction,
    Vectors,
    register,
)

SIMILARITIES = {"cosine": cosines, "angle": angles}


@dataclasses.dataclass
class GradedSimilarityConfig(ObjectiveConfig):
    """Settings of objectives that read pairs with a score."""

    record_kind: ClassVar[str] = "pairs"

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        if not facts.scores:
            raise UserError(
                f"{data.setting(where)}: the pairs have no scores; make the records with "
                "cmlm create-pairs --format=table --score_column=…"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> GradedPairs:
        return GradedPairs(data.seq_length, facts.special)


@register("cosine_similarity")
class CosineSimilarity(Objective):
    """The squared difference of a pair's cosine and its score."""

    config_class = GradedSimilarityConfig
    metric_directions: ClassVar[dict[str, str]] = {"cosine_error": LOWER}

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        first, second = (encode(features[side], side)["default"] for side in ("first", "second"))
        total = tf.reduce_sum(cosine_errors(first, second, features["score"]))
        count = self.num_predictions(features)
        return Prediction(total, count, {"cosine_error": (total, count)})

    def num_predictions(self, features: dict) -> tf.Tensor:
        return tf.cast(tf.shape(features["score"])[0], tf.float32)


@dataclasses.dataclass
class CosentConfig(GradedSimilarityConfig):
    """Settings of `cosent`.

    Attributes:
      similarity: `cosine` (default; Su 2022), or `angle` (Li and Li 2024), which needs vectors of
        an even number of components.
      logit_scale: factor of the similarities, an inverse temperature. Default 20, as in both
        authors' code.
    """

    similarity: Annotated[str, OneOf(tuple(SIMILARITIES))] = "cosine"
    logit_scale: Annotated[float, above(0)] = 20.0

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if self.similarity == "angle" and encoder_config.embedding_size % 2:
            raise UserError(
                f"{where}.similarity is angle, but the sentence vector has "
                f"{encoder_config.embedding_size} components; an even number is needed"
            )

    def min_batch_size(self) -> int:
        return 2

    def method_data(self) -> dict[str, Any]:
        # In buckets only pairs of about equal length would be ordered.
        return {"bucket_boundaries": []}


@register("cosent")
class Cosent(Objective):
    """The loss of the pairs of the global batch that are ordered otherwise than their scores."""

    config_class = CosentConfig
    metric_directions: ClassVar[dict[str, str]] = {"cosent_loss": LOWER}
    in_batch_metrics = frozenset(metric_directions)

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        sides = {side: encode(features[side], side)["default"] for side in ("first", "second")}
        return sides | {"score": features["score"][:, tf.newaxis]}

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        similarity = SIMILARITIES[self.config.similarity]
        similarities = gather(similarity(vectors["first"], vectors["second"]))[0]
        scores = tf.stop_gradient(gather(vectors["score"])[0])[:, 0]
        # Each replica returns the loss of the whole global batch, which is their mean.
        loss = cosent(similarities, scores, self.config.logit_scale)
        count = tf.cast(tf.shape(vectors["score"])[0], tf.float32)
        return ObjectiveOutput(loss, {"cosent_loss": (loss * count, count)})
