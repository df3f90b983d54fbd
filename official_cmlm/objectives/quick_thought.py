"""Adjacent sentences as in-batch retrieval: the paper's baseline "QuickThought (CC)".

Logeswaran and Lee (2018) encode a sentence with f and the sentences around it with another encoder
g, and classify the true context among the other sentences of the batch, by plain inner products and
without a margin: `encoders: separate, batches: runs, margin: 0, normalize: false, logit_scale: 1,
bidirectional: false, context_size: 1`. CMLM §3.1 trains the baseline with a Transformer; with
`encoders: shared` both sides are the one encoder that is exported.
"""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, between
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.hashing import halves
from official_cmlm.inputs.views import AdjacentPairs, RecordFacts, SegmentRuns
from official_cmlm.losses.blocks import Reduction
from official_cmlm.losses.neighbours import are_neighbours, neighbour_cross_entropy
from official_cmlm.losses.replicas import gather, global_mean
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import Encode, Objective, ObjectiveOutput, Vectors, register
from official_cmlm.objectives.retrieval import (
    METRIC_DIRECTIONS,
    RetrievalConfig,
    retrieval_output,
    retrieval_vectors,
)

ENCODERS = ("shared", "separate")
BATCHES = ("pairs", "runs")


@dataclasses.dataclass
class QuickThoughtConfig(RetrievalConfig):
    """Settings of `quick_thought`.

    Attributes:
      encoders: `shared` (default), one encoder for both sides; `separate`, a second encoder for the
        second side, which starts from the same weights and is not exported. The published model
        concatenates the vectors of both encoders; here only the first one is exported.
      batches: `pairs` (default): each context sentence gives an example of its own, with all
        other examples of the batch as negatives; if two examples of a sentence are in one batch,
        the neighbour in each is a negative in the other, and so is the sentence itself where it is
        the neighbour in another example; `ignore_equal_texts` excludes both. `runs`, as Logeswaran
        and Lee's code: a batch is a run of consecutive sentences, all of which are candidates but
        the sentence itself; all context sentences are one target, the even distribution. Neighbours
        are in the same record.
      context_size: largest distance of a context sentence, in sentences. Default 1: the two
        neighbours (Logeswaran and Lee 2018, §3).
    """

    encoders: Annotated[str, OneOf(ENCODERS)] = "shared"
    batches: Annotated[str, OneOf(BATCHES)] = "pairs"
    context_size: Annotated[int, between(1, 1024)] = 1

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if self.batches == "runs" and (self.margin or self.ignore_equal_texts):
            raise UserError(
                f"{where}: batches: runs takes neither a margin nor equal texts into account; set "
                "margin: 0 and ignore_equal_texts: false"
            )

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        if self.batches == "runs" and data.bucket_boundaries:
            raise UserError(
                f"{where}.bucket_boundaries is {list(data.bucket_boundaries)}: neighbours would be "
                "in batches of other lengths; batches: runs takes bucket_boundaries: []"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> AdjacentPairs | SegmentRuns:
        if self.batches == "runs":
            return SegmentRuns(data.segment, data.seq_length, facts.special)
        return AdjacentPairs(
            data.segment,
            data.seq_length,
            data.swap_probability,
            facts.special,
            self.context_size,
        )


@register("quick_thought")
class QuickThought(Objective):
    """The loss of finding each segment's neighbour among the segments of the whole global batch."""

    config_class = QuickThoughtConfig
    metric_directions = METRIC_DIRECTIONS
    in_batch_metrics = frozenset(METRIC_DIRECTIONS)

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        self.context_encoder = None
        if self.config.encoders == "separate":
            self.context_encoder = SentenceEncoderModel(encoder.config)
            self.context_encoder.set_weights(encoder.get_weights())

    def initialize(self, encoder: SentenceEncoderModel) -> None:
        if self.context_encoder is not None:
            self.context_encoder.set_weights(encoder.get_weights())

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        runs = self.config.batches == "runs"
        one, other = ("segment", "segment") if runs else ("first", "second")
        first = encode(features[one], "first")["default"]
        if self.context_encoder is None:
            second = encode(features[other], "second")["default"]
        else:
            second = self.context_encoder(
                features[other], training=encode.training, stream=encode.stream("context")
            )["default"]
        if runs:
            place = tf.cast(features["place"], tf.float32)[:, tf.newaxis]
            places = tf.concat([halves(features["record"]), place], axis=1)
            return {"first": first, "second": second, "places": places}
        return retrieval_vectors(first, second, features, self.config)

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        reduction = self.config.reduction(self.static_shapes)
        if self.config.batches == "runs":
            return self._compare_runs(vectors, reduction)
        return retrieval_output(vectors, self.config, reduction)

    def _compare_runs(self, vectors: Vectors, reduction: Reduction) -> ObjectiveOutput:
        """Computes the mean loss over the sentences that have a neighbour in the batch."""
        config = self.config
        places, offset = gather(tf.stop_gradient(vectors["places"]))
        rows = offset + tf.range(tf.shape(vectors["first"])[0])
        has_neighbour = tf.reduce_any(are_neighbours(rows, places, config.context_size), axis=1)
        count = tf.reduce_sum(tf.cast(has_neighbour, tf.float32))

        def direction(anchors: str, candidates: str) -> tuple[tf.Tensor, tf.Tensor]:
            def losses(
                part: tf.Tensor, start: tf.Tensor, candidates: tf.Tensor
            ) -> tuple[tf.Tensor, tf.Tensor]:
                return neighbour_cross_entropy(
                    part,
                    candidates,
                    offset + start,
                    places=places,
                    distance=config.context_size,
                    logit_scale=config.logit_scale,
                    normalize=config.normalize,
                )

            return reduction(losses, vectors[anchors], (gather(vectors[candidates])[0],))

        total, hits = direction("first", "second")
        if config.bidirectional:
            total += direction("second", "first")[0]
        return ObjectiveOutput(
            loss=global_mean(total, count),
            metrics={"retrieval_loss": (total, count), "recall_at_1": (hits, count)},
        )
