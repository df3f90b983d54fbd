"""DiffCSE: SimCSE, and a network that finds replaced tokens with the sentence vector's help.

Chuang et al. 2022, "DiffCSE: Difference-based Contrastive Learning for Sentence Embeddings", which
CMLM-CSE trained for its Table 1. A frozen generator fills in the masked tokens of a sentence; a
second network, which sees the sentence vector h, says of each token whether it is the original one.
L = L_contrast + λ · L_rtd. The paper's code (github.com/voidism/DiffCSE, `diffcse/models.py`) does
so with both views, `detection: reference`; its generator is another, smaller model, its second
network a BERT, `discriminator: whole`, and its projection head has batch normalisation.
"""

import dataclasses
from typing import Annotated, ClassVar

import tensorflow as tf

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.encoder_weights import has_head, read_weights
from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.checkpoints.weights import assign_weights
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least, between
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import RecordFacts, SpecialIds
from official_cmlm.losses.vocabulary_blocks import most_likely_in_blocks
from official_cmlm.modeling.auxiliary_network import AuxiliaryNetwork, TrainedBert
from official_cmlm.modeling.bert import new_dense
from official_cmlm.modeling.language_model_head import build_language_model_head
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import HIGHER, LOWER, Encode, Prediction, Vectors, register
from official_cmlm.objectives.cmlm_cse import AuxiliaryConfig, WithAuxiliary
from official_cmlm.objectives.masked_prediction import at_predictions, end_to_end

DETECTIONS = ("masked", "reference")
DISCRIMINATORS = ("fusion", "whole")
REPLACED_METRICS = {"replaced_token_loss": LOWER, "replaced_token_accuracy": HIGHER}


@dataclasses.dataclass
class DiffCseConfig(AuxiliaryConfig):
    """Settings of `diff_cse`, besides those of `contrastive`, of masking and of the network.

    Attributes:
      masking_rate: as in every masking objective; default 0.3 (Chuang et al. 2022, appendix).
      replaced_token_weight: λ of the replaced-token loss. Default 0.005, the authors' value for
        BERT base. With 0 the objective is SimCSE.
      detection: `masked` (default): the first view is masked, and the generator fills in the masked
        places only, without dropout; the loss is a mean over real tokens but the first.
        `reference`, as in the authors' code: each view is masked and is judged with its own h; the
        generator, with dropout on, replaces all tokens but the first by its most likely ones; the
        loss is a mean over all positions, the first and padding included, which are never replaced.
        Random batches of several `streams` are refused unless XLA compiles the step: each host
        would pad its share to another length.
      generator: the frozen model that fills in tokens: an encoder directory, an installed package
        or a name of the hub, with a language-model head and the records' vocabulary; the authors'
        is DistilBERT. Empty (default): a copy of the starting encoder and its head.
      discriminator: the network that finds replaced tokens. `fusion` (default): that of CMLM-CSE,
        of `lexical_layers` and `fusion_layers`, with one logit a token. `whole`, as in the authors'
        code: a copy of the starting BERT that is trained, with h in the place of `[CLS]` in the
        first block's input, and two logits a token, whose difference counts.
      lexical_layers, fusion_layers: sizes of `discriminator: fusion`.
      vocabulary_block_size: as in every masking objective, but for the generator's logits, of which
        only the largest is needed.
    """

    masking_rate: Annotated[float, between(0, 1, above_low=True)] = 0.3
    replaced_token_weight: Annotated[float, at_least(0)] = 0.005
    detection: Annotated[str, OneOf(DETECTIONS)] = "masked"
    generator: str = ""
    discriminator: Annotated[str, OneOf(DISCRIMINATORS)] = "fusion"

    prediction_field: ClassVar[str] = "replaced_token_weight"

    @property
    def has_lexical_layers(self) -> bool:
        return self.discriminator == "fusion"

    def needs_language_model_head(self) -> bool:
        # The generator is a copy of the starting encoder and of its head, unless it has a name.
        return super().needs_language_model_head() and not self.generator

    def needs_trained_head(self) -> bool:
        return self.needs_language_model_head()

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        super().check_records(data, facts, where)
        if not (self.generator and self.replaced_token_weight):
            return
        directory, fault = self.find_generator(), ""
        if not has_head(directory):
            fault = "has no language-model head; name a masked language model"
        elif directory.vocabulary.hash != facts.vocabulary.hash:
            fault = (
                f"is for vocabulary {directory.vocabulary.hash}, the records have "
                f"{facts.vocabulary.hash}; name a model with the vocabulary of the records"
            )
        elif data.seq_length > directory.config.max_seq_length:
            fault = (
                f"has {directory.config.max_seq_length} positions, {where}.seq_length is "
                f"{data.seq_length}; lower that"
            )
        if fault:
            raise UserError(f"task.objectives.diff_cse.generator {self.generator} {fault}")

    def find_generator(self) -> EncoderDirectory:
        """Returns the directory of the generator that has a name."""
        try:
            return encoder_directory_of(find_encoder(self.generator))
        except UserError as error:
            raise UserError(f"task.objectives.diff_cse.generator: {error}") from None

    def counts_padding(self) -> bool:
        return bool(self.replaced_token_weight) and self.detection == "reference"

    def augments(self, special: SpecialIds) -> list[Augment]:
        if not self.replaced_token_weight:
            return []
        return [
            self.mask_tokens(name, special, stream=number)
            for number, name in enumerate(self.judged_views)
        ]

    @property
    def judged_views(self) -> tuple[str, ...]:
        """Names of the views in which replaced tokens are looked for."""
        return ("first", "second") if self.detection == "reference" else ("first",)


@register("diff_cse")
class DiffCse(WithAuxiliary):
    """The contrastive loss, and the loss of finding replaced tokens."""

    config_class = DiffCseConfig
    metric_directions = WithAuxiliary.metric_directions | REPLACED_METRICS

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        super().add_layers(encoder)
        self.auxiliary = None
        if not self.config.replaced_token_weight:
            return
        config, shape = self.config, encoder.config
        of_generator = config.find_generator().config if config.generator else shape
        self.generator = SentenceEncoderModel(of_generator, random_weights=False)
        self.generator_head = build_language_model_head(self.generator)
        if config.discriminator == "whole":
            self.auxiliary, logits = TrainedBert(shape), 2
        else:
            sizes = config.lexical_layers, config.fusion_layers
            self.auxiliary, logits = AuxiliaryNetwork(shape, *sizes), 1
        sizes = shape.hidden_size, logits
        self.is_original = new_dense(shape, *sizes, "is_original", dtype=tf.float32)
        self.generator.trainable = self.generator_head.trainable = False
        self.initialize(encoder)

    def initialize(self, encoder: SentenceEncoderModel) -> None:
        if self.auxiliary is None:
            return
        self.auxiliary.copy_from(encoder)
        if not self.config.generator:
            self.generator.set_weights(encoder.get_weights())
            self.generator_head.set_weights(self.head.get_weights())

    def load_named(self) -> None:
        if self.auxiliary is not None and self.config.generator:
            weights = read_weights(self.config.find_generator(), with_head=True)
            assign_weights(weights, self.generator, self.generator_head)

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction | None:
        if self.auxiliary is None:
            return None
        names = self.config.judged_views
        original = end_to_end([features[name] for name in names])
        masked = end_to_end([features[f"{name}_masked"] for name in names])
        filled = self.fill_in(original, masked, encode)
        conditions = ["first", "second"]
        if self.config.conditioning == "vector":
            conditions = ["sentence", "second_sentence"]
        outputs = self.auxiliary(
            {**original, "input_word_ids": filled},
            tf.concat([vectors[name] for name in conditions[: len(names)]], axis=0),
            training=encode.training,
            stream=encode.stream("auxiliary"),
            views=len(names),
        )
        answers = self.is_original(tf.cast(outputs, tf.float32))
        logits = answers[:, :, -1]
        if answers.shape[-1] == 2:
            logits -= answers[:, :, 0]
        is_original = tf.cast(filled == original["input_word_ids"], tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(is_original, logits)
        right = tf.cast((logits > 0) == (is_original > 0), tf.float32)
        weights = self._weights(features)
        total, weight = tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
        metrics = {
            "replaced_token_loss": (total, weight),
            "replaced_token_accuracy": (tf.reduce_sum(right * weights), weight),
        }
        return Prediction(total, weight, metrics)

    def fill_in(self, original: dict, masked: dict, encode: Encode) -> tf.Tensor:
        """Puts the generator's most likely tokens into the sentences; see `detection`.

        Args:
          original: the encoder's inputs, int32 `[batch, seq]`; of both views end to end.
          masked: features that `MaskTokens` made of them.
          encode: its dropout stream is the generator's in training, where the generator has
            dropout.

        Returns:
          int32 `[batch, seq]`; no gradient flows through it.
        """
        ids = original["input_word_ids"]
        if self.config.detection == "reference":
            outputs = self.generator(
                masked,
                training=encode.training,
                views=len(self.config.judged_views),
                stream=encode.stream("generator"),
            )["sequence_output"]
            return tf.where(_real_but_first(original), self._most_likely(outputs), ids)
        outputs = self.generator(at_predictions(masked), training=False)["sequence_output"]
        # Slots that are not used point to the first token, which stays as it is.
        places = masked["masked_lm_positions"]
        kept = tf.gather(ids, places, batch_dims=1)
        likely = tf.where(masked["masked_lm_weights"] > 0, self._most_likely(outputs), kept)
        slots = tf.shape(places)
        rows = tf.repeat(tf.range(slots[0])[:, tf.newaxis], slots[1], axis=1)
        return tf.tensor_scatter_nd_update(ids, tf.stack([rows, places], axis=2), likely)

    def _most_likely(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the generator's most likely token for each of its outputs: int32 `[batch, n]`."""
        shape = tf.shape(outputs)[:2]
        flat = tf.reshape(outputs, [1, -1, outputs.shape[-1]])
        everywhere = tf.range(shape[0] * shape[1])[tf.newaxis]
        block_size = self.config.vocabulary_block_size
        if block_size:
            factors = self.generator_head(flat, masked_positions=everywhere, factors=True)
            likely = most_likely_in_blocks(*factors, block_size)
        else:
            logits = self.generator_head(flat, masked_positions=everywhere)[0]
            likely = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return tf.stop_gradient(tf.reshape(likely, shape))

    def _weights(self, features: dict) -> tf.Tensor:
        """Returns the weight of each position's answer: float32 `[batch, seq]`, of all views."""
        views = end_to_end([features[name] for name in self.config.judged_views])
        if self.config.detection == "reference":
            return tf.ones_like(views["input_mask"], tf.float32)
        return tf.cast(_real_but_first(views), tf.float32)

    def num_predictions(self, features: dict) -> tf.Tensor:
        if self.auxiliary is None:
            return tf.constant(0.0)
        return tf.reduce_sum(self._weights(features))


def _real_but_first(inputs: dict) -> tf.Tensor:
    """Returns which tokens are real and not the first, which h replaces: bool `[batch, seq]`."""
    real = inputs["input_mask"] > 0
    return tf.concat([tf.zeros_like(real[:, :1]), real[:, 1:]], axis=1)
