"""Natural language inference between languages: a classifier on top of the encoder (CMLM §4.3).

"We train a 3-way classifier on the concatenation of [u, v, |u − v|, u ∗ v]. Weights of transformer
encoders are also updated in the finetuning process." Premise and hypothesis come in different
languages, drawn anew each epoch from rows of translations.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.pair_views import HYPOTHESIS_LANGUAGES, InferencePairs, one_language
from official_cmlm.inputs.views import Source
from official_cmlm.losses.inference import inference_features, inference_loss
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
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
        premise (§4.3): that of another pair of the row, or, where rows have one pair, of the pair
        itself; `same`, in the same, as Yang et al. 2019a train.
    """

    hypothesis_language: str = "different"


@register("nli")
class Nli(Objective):
    """Cross-entropy of the three labels."""

    config_class = NliConfig
    metric_names = ("nli_loss", "nli_accuracy")
    record_kind = "pairs"

    def __init__(
        self,
        config: NliConfig,
        encoder: SentenceEncoderModel,
        head: tf_keras.layers.Layer | None,
    ) -> None:
        super().__init__(config, encoder, head)
        self.classifier = tf_keras.layers.Dense(
            NUM_CLASSES,
            kernel_initializer=tf_keras.initializers.TruncatedNormal(
                stddev=encoder.config.initializer_range
            ),
            dtype=tf.float32,
            name="classifier",
        )
        self.classifier.build([None, 4 * encoder.config.hidden_size])

    @classmethod
    def check(cls, config: NliConfig, encoder_config: object, where: str) -> None:
        super().check(config, encoder_config, where)
        if config.hypothesis_language not in HYPOTHESIS_LANGUAGES:
            raise UserError(
                f"{where}.hypothesis_language must be one of {', '.join(HYPOTHESIS_LANGUAGES)}, "
                f"got {config.hypothesis_language!r}"
            )

    @classmethod
    def check_records(cls, config: NliConfig, data: DataConfig, source: Source, where: str) -> None:
        if not source.labels:
            raise UserError(
                f"{where}.input_path={data.input_path}: the pairs have no labels, nli needs them; "
                "make the records from tables with a third column"
            )
        read = data.languages or source.languages
        same = [tag for tag in read if one_language(tag)]
        different = [tag for tag in read if not one_language(tag)]
        where = f"{where}.input_path={data.input_path}"
        if config.hypothesis_language == "same" and different:
            raise UserError(
                f"{where}: has pairs of two languages ({', '.join(different)}), "
                "hypothesis_language: same needs both texts in one language; set it to different, "
                "or read other records"
            )
        if config.hypothesis_language == "different" and source.row_size < 2 and same:
            raise UserError(
                f"{where}: has pairs of one language ({', '.join(same)}) in rows of one pair, "
                "hypothesis_language: different needs translations; make the records with "
                "--row_aligned or of pairs in two languages, or set it to same"
            )

    @classmethod
    def view(cls, config: NliConfig, data: DataConfig, source: Source) -> InferencePairs:
        return InferencePairs(
            data.seq_length, config.hypothesis_language, source.row_size, source.special
        )

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        premise = encode(features["first"], "first")["default"]
        hypothesis = encode(features["second"], "second")["default"]
        logits = self.classifier(inference_features(premise, hypothesis))
        losses, hits = inference_loss(logits, features["label"])
        count = tf.cast(tf.shape(losses)[0], tf.float32)
        total = tf.reduce_sum(losses)
        metrics = {"nli_loss": (total, count), "nli_accuracy": (tf.reduce_sum(hits), count)}
        return Prediction(total, count, metrics)

    def num_predictions(self, features: dict) -> tf.Tensor:
        return tf.cast(tf.shape(features["label"])[0], tf.float32)
