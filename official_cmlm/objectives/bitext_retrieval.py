"""Bitext retrieval: find each sentence's translation among those of the batch (CMLM §4.2).

Additive margin softmax over pairs records, in both directions. The published sum with CMLM gives
this loss the weight α = 0.2.
"""

import dataclasses
from typing import ClassVar

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.pair_views import TextPairs, one_language
from official_cmlm.inputs.views import Source
from official_cmlm.objectives.base import Encode, Objective, ObjectiveOutput, Vectors, register
from official_cmlm.objectives.retrieval import (
    METRIC_DIRECTIONS,
    RetrievalConfig,
    retrieval_output,
    retrieval_vectors,
)


@dataclasses.dataclass
class BitextRetrievalConfig(RetrievalConfig):
    """Settings of `bitext_retrieval`: those of every retrieval; its defaults are §4.2's."""

    record_kind: ClassVar[str] = "pairs"

    def check_records(self, data: DataConfig, source: Source, where: str) -> None:
        where = data.setting(where)
        if source.labels:
            raise UserError(
                f"{where}: the pairs have labels ({', '.join(source.labels)}), so they are NLI "
                "pairs, not translations; name records of bitext"
            )
        read = data.languages or source.languages
        if all(one_language(tag) for tag in read):
            raise UserError(
                f"{where}: the two texts of each pair are in one language ({', '.join(read)}), "
                "bitext_retrieval needs translations; name records of bitext, e.g. en-de"
            )

    def view(self, data: DataConfig, source: Source) -> TextPairs:
        return TextPairs(data.seq_length, source.special)


@register("bitext_retrieval")
class BitextRetrieval(Objective):
    """Finds translations among the candidates of the whole global batch."""

    config_class = BitextRetrievalConfig
    metric_directions = METRIC_DIRECTIONS

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        first = encode(features["first"], "first")["default"]
        second = encode(features["second"], "second")["default"]
        return retrieval_vectors(first, second, features, self.config)

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        return retrieval_output(vectors, self.config, self.summed)
