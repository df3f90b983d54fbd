"""Natural language inference between languages: a classifier on top of the encoder (CMLM §4.3).

"We train a 3-way classifier on the concatenation of [u, v, |u − v|, u ∗ v]. Weights of transformer
encoders are also updated in the finetuning process." Premise and hypothesis come in different
languages, drawn anew each epoch from rows of translations.
"""

import dataclasses
from typing import Annotated, ClassVar

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pair_views import HYPOTHESIS_LANGUAGES, InferencePairs, one_language
from official_cmlm.inputs.views import RecordFacts
from official_cmlm.losses.nli import nli_features, nli_loss
from official_cmlm.modeling.bert import new_dense
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    HIGHER,
    LOWER,
    Encode,
    Objective,
    ObjectiveConfig,
    Prediction,
    Vectors,
    register,
)

NUM_CLASSES = 3


@dataclasses.dataclass
class NliConfig(ObjectiveConfig):
    """Settings of `nli`.

    Attributes:
      hypothesis_language: `different` (default), the hypothesis is in another language than the
        premise (§4.3): it is the hypothesis of another pair of the row or, where rows have one
        pair, of the pair itself; `same`: in the language of the premise, as Yang et al. 2019a
        train.
    """

    hypothesis_language: Annotated[str, OneOf(HYPOTHESIS_LANGUAGES)] = "different"

    record_kind: ClassVar[str] = "pairs"

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        if not facts.labels:
            raise UserError(
                f"{data.setting(where)}: the pairs have no labels, which nli needs; "
                "make the records from tables with a third column"
            )
        read = data.languages or facts.languages
        same = [tag for tag in read if one_language(tag)]
        different = [tag for tag in read if not one_language(tag)]
        where = data.setting(where)
        if self.hypothesis_language == "same" and different:
            raise UserError(
                f"{where}: has pairs of two languages ({', '.join(different)}), "
                "hypothesis_language: same needs both texts in one language; set it to different, "
                "or read other records"
            )
        if self.hypothesis_language == "different" and facts.row_size < 2 and same:
            raise UserError(
                f"{where}: has pairs of one language ({', '.join(same)}) in rows of one pair, "
                "hypothesis_language: different needs translations; make the records with "
                "--row_aligned or of pairs in two languages, or set it to same"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> InferencePairs:
        return InferencePairs(
            data.seq_length, self.hypothesis_language, facts.row_size, facts.special
        )


@register("nli")
class Nli(Objective):
    """Cross-entropy of the three labels."""

    config_class = NliConfig
    metric_directions: ClassVar[dict[str, str]] = {"nli_loss": LOWER, "nli_accuracy": HIGHER}

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        size = 4 * encoder.config.embedding_size
        self.classifier = new_dense(
            encoder.config, size, NUM_CLASSES, "classifier", dtype=tf.float32
        )

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        premise = encode(features["first"], "first")["default"]
        hypothesis = encode(features["second"], "second")["default"]
        logits = self.classifier(nli_features(premise, hypothesis))
        losses, hits = nli_loss(logits, features["label"])
        count = tf.cast(tf.shape(losses)[0], tf.float32)
        total = tf.reduce_sum(losses)
        metrics = {"nli_loss": (total, count), "nli_accuracy": (tf.reduce_sum(hits), count)}
        return Prediction(total, count, metrics)

    def num_predictions(self, features: dict) -> tf.Tensor:
        return tf.cast(tf.shape(features["label"])[0], tf.float32)
