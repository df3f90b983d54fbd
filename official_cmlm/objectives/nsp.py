"""Next-sentence prediction with masked tokens: BERT's training, which CMLM's appendix E compares.

"We tried MLM (CC) with and w/o NSP and it does not make much difference on SentEval. Training NSP
accuracy quickly converge to 95%, indicating that NSP is not a challenging task." Two segments share
one sequence; its masked copy is encoded once. The loss is the sum of the masked-token loss and of
the loss of a classifier on BERT's pooled first token, which says whether the second segment follows
the first (Devlin et al. 2019, §3.1 and appendix A.2).
"""

import dataclasses
from typing import Annotated, ClassVar

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.next_sentence import (
    FirstTokenBeforeSlots,
    NextSentencePairs,
    SegmentTypes,
)
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import RecordFacts, SpecialIds
from official_cmlm.losses.next_sentence import next_sentence_loss
from official_cmlm.losses.replicas import global_mean
from official_cmlm.modeling.bert import new_dense
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    HIGHER,
    LOWER,
    Encode,
    Objective,
    ObjectiveOutput,
    Prediction,
    Vectors,
    register,
)
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    MaskingConfig,
    num_masked,
    predict_masked,
)


@dataclasses.dataclass
class NspConfig(MaskingConfig):
    """Settings of `nsp`, besides those of masking.

    Attributes:
      random_probability: probability that the second segment is a random one. Default 0.5 (Devlin
        et al. 2019, §3.1).
    """

    random_probability: Annotated[float, between(0, 1)] = 0.5

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if encoder_config.type_vocab_size < 2:
            raise UserError(
                f"{where} gives the two segments different token types, but "
                f"encoder.type_vocab_size is {encoder_config.type_vocab_size}; it needs 2, as "
                "BERT's encoders have"
            )

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        if data.seq_length < 5:
            raise UserError(
                f"{where}.seq_length is {data.seq_length}; nsp needs 5 at least, for two segments "
                "and three special tokens"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> NextSentencePairs:
        return NextSentencePairs(
            data.segment, data.seq_length, self.random_probability, facts.special
        )

    def augments(self, special: SpecialIds) -> list[Augment]:
        masked = self.mask_tokens("pair", special)
        return [SegmentTypes(), masked, FirstTokenBeforeSlots(masked.target)]


@register("nsp")
class Nsp(Objective):
    """The masked-token loss, and the cross-entropy of next or random.

    The classifier reads the encoder's own pooler, which is trained with it.
    """

    config_class = NspConfig
    metric_directions: ClassVar[dict[str, str]] = {
        "nsp_loss": LOWER,
        "nsp_accuracy": HIGHER,
        **MASKED_METRICS,
    }
    is_language_model = True

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        self.pooler = encoder.bert.pooler_layer
        self.pooler.trainable = True
        size = encoder.config.hidden_size
        self.classifier = new_dense(encoder.config, size, 2, "next_sentence", dtype=tf.float32)

    def _outputs(self, features: dict, encode: Encode) -> tf.Tensor:
        """Returns the first token's output, then those of the prediction slots; encoded once."""
        return encode(features["pair_masked"], "pair_masked")["sequence_output"]

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        pooled = self.pooler(self._outputs(features, encode)[:, 0])
        return {"logits": self.classifier(pooled), "labels": tf.one_hot(features["label"], 2)}

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        losses, hits = next_sentence_loss(vectors["logits"], vectors["labels"])
        total, count = tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32)
        metrics = {"nsp_loss": (total, count), "nsp_accuracy": (tf.reduce_sum(hits), count)}
        return ObjectiveOutput(global_mean(total, count), metrics)

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        outputs = self._outputs(features, encode)
        return predict_masked(self, outputs[:, 1:], features["pair_masked"])

    def num_predictions(self, features: dict) -> tf.Tensor:
        return num_masked(features["pair_masked"])
