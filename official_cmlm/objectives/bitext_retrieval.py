"""Bitext retrieval: find each sentence's translation among those of the batch (CMLM §4.2).

Additive margin softmax over pairs records, in both directions. The published sum with CMLM gives
this loss the weight α = 0.2.

Texts of one language that belong together, such as questions and answers, are retrieved in the same
way; with `margin: 0, logit_scale: 20, bidirectional: false` the loss is that of SimCSE with
supervision (Gao et al. 2021, Eq. 5) and of sentence-transformers' MultipleNegativesRankingLoss.
"""

import dataclasses
from typing import Annotated, ClassVar

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pair_views import TextPairs, one_language, text_view
from official_cmlm.inputs.views import RecordFacts
from official_cmlm.objectives.base import Encode, Objective, ObjectiveOutput, Vectors, register
from official_cmlm.objectives.retrieval import (
    METRIC_DIRECTIONS,
    RetrievalConfig,
    retrieval_output,
    retrieval_vectors,
)


@dataclasses.dataclass
class BitextRetrievalConfig(RetrievalConfig):
    """Settings of `bitext_retrieval`, besides those of every retrieval, whose defaults are §4.2's.

    Attributes:
      one_language: whether both texts of all pairs may be in one language, as questions and answers
        are. Default false: such pairs are refused, as they cannot be translations.
      hard_negatives: whether the hard negatives of records that have some are candidates of all
        anchors of the global batch, first → second. Default true.
      hard_negative_weight: log α of Gao et al. 2021, appendix B: added to the logit of an anchor's
        own hard negative, in nats, so that it counts as α candidates. From -100 to 100, beyond
        which it would drown all similarities. Default 0, as in SimCSE's code; other values need
        records with hard negatives.
    """

    one_language: bool = False
    hard_negatives: bool = True
    hard_negative_weight: Annotated[float, between(-100, 100)] = 0.0

    record_kind: ClassVar[str] = "pairs"

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        where = data.setting(where)
        if facts.labels:
            raise UserError(
                f"{where}: the pairs have labels ({', '.join(facts.labels)}), so they are NLI "
                "pairs, not translations; name records of bitext"
            )
        read = data.languages or facts.languages
        if not self.one_language and all(one_language(tag) for tag in read):
            raise UserError(
                f"{where}: the two texts of each pair are in one language ({', '.join(read)}), "
                "bitext_retrieval needs translations; name records of bitext, e.g. en-de, or set "
                "one_language for pairs such as questions and answers"
            )
        compares = self.hard_negatives and facts.negatives
        if self.hard_negative_weight and data.is_training and not compares:
            raise UserError(
                f"{where}: no hard negatives, on which bitext_retrieval.hard_negative_weight could "
                "act; make records of triples, with hard_negatives true, or set it to 0"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> TextPairs:
        return text_view(data.seq_length, facts, self.hard_negatives)


@register("bitext_retrieval")
class BitextRetrieval(Objective):
    """The loss of finding translations among the candidates of the whole global batch."""

    config_class = BitextRetrievalConfig
    metric_directions = METRIC_DIRECTIONS
    in_batch_metrics = frozenset(METRIC_DIRECTIONS)

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        first = encode(features["first"], "first")["default"]
        second = encode(features["second"], "second")["default"]
        negative = None
        if "negative" in features:
            negative = encode(features["negative"], "negative")["default"]
        return retrieval_vectors(first, second, features, self.config, negative)

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        weight = self.config.hard_negative_weight
        reduction = self.config.reduction(self.static_shapes)
        return retrieval_output(vectors, self.config, reduction, weight)
