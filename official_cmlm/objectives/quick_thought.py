"""Adjacent sentences as in-batch retrieval: the paper's baseline "QuickThought (CC)".

Logeswaran and Lee (2018) encode a sentence with f and the sentences around it with another encoder
g, and classify the true context among the other sentences of the batch, by plain inner products and
without a margin: `encoders: separate, margin: 0, normalize: false, logit_scale: 1,
bidirectional: false, context_size: 1`. CMLM §3.1 trains the baseline with a Transformer; with
`encoders: shared` both sides are the one encoder that is exported.
"""

import dataclasses
from typing import Annotated

import tf_keras

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.views import AdjacentPairs, RecordFacts
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import Encode, Objective, ObjectiveOutput, Vectors, register
from official_cmlm.objectives.retrieval import (
    METRIC_DIRECTIONS,
    RetrievalConfig,
    retrieval_output,
    retrieval_vectors,
)
from official_cmlm.validation import OneOf, between

ENCODERS = ("shared", "separate")


@dataclasses.dataclass
class QuickThoughtConfig(RetrievalConfig):
    """Settings of `quick_thought`.

    Attributes:
      encoders: `shared` (default), one encoder for both sides; `separate`, a second encoder for the
        second side, which starts from the same weights and is not exported. The published model
        concatenates the vectors of both encoders; only f is exported here.
      context_size: largest distance of a context sentence, in sentences. Default 1: the two
        neighbours (Logeswaran and Lee 2018, §3). Each context sentence gives an example of its own,
        with all other examples of the batch as negatives. If two neighbours of a sentence are in
        one batch, each is a (false) negative for the other.
    """

    encoders: Annotated[str, OneOf(ENCODERS)] = "shared"
    context_size: Annotated[int, between(1, 1024)] = 1

    def view(self, data: DataConfig, facts: RecordFacts) -> AdjacentPairs:
        return AdjacentPairs(
            data.segment,
            data.seq_length,
            data.swap_probability,
            facts.special,
            self.context_size,
        )


@register("quick_thought")
class QuickThought(Objective):
    """Finds each segment's neighbour among those of the whole global batch."""

    config_class = QuickThoughtConfig
    metric_directions = METRIC_DIRECTIONS
    in_batch_metrics = frozenset(METRIC_DIRECTIONS)

    def __init__(
        self,
        config: QuickThoughtConfig,
        encoder: SentenceEncoderModel,
        head: tf_keras.layers.Layer | None,
        static_shapes: bool = False,
    ) -> None:
        super().__init__(config, encoder, head, static_shapes)
        self.context_encoder = None
        if config.encoders == "separate":
            self.context_encoder = SentenceEncoderModel(encoder.config)
            self.context_encoder.set_weights(encoder.get_weights())

    def initialize(self, encoder: SentenceEncoderModel) -> None:
        if self.context_encoder is not None:
            self.context_encoder.set_weights(encoder.get_weights())

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        first = encode(features["first"], "first")["default"]
        if self.context_encoder is None:
            second = encode(features["second"], "second")["default"]
        else:
            second = self.context_encoder(
                features["second"], training=encode.training, stream=encode.stream("context")
            )["default"]
        return retrieval_vectors(first, second, features, self.config)

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        return retrieval_output(vectors, self.config, self.config.reduction(self.static_shapes))
