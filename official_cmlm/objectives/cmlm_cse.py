"""CMLM-CSE: SimCSE, and a small network that predicts masked words with the sentence vector's help.

L = L_contrast + λ · L_mlm (Eq. 6). The extractor in front of that network is frozen, so the loss
can only fall if the sentence vector carries more of the sentence's words (§3.2).
"""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, at_least, between
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import SpecialIds
from official_cmlm.modeling.auxiliary_network import AuxiliaryNetwork
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import Encode, ObjectiveOutput, Prediction, Vectors, register
from official_cmlm.objectives.contrastive import Contrastive, ContrastiveConfig
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    TwoTermConfig,
    num_masked,
    predict_masked,
)

# Value of `conditioning` -> the key of `Contrastive.vectors` that it names.
CONDITIONINGS = {"projected": "first", "vector": "sentence"}


@dataclasses.dataclass
class AuxiliaryConfig(TwoTermConfig, ContrastiveConfig):
    """Settings of an auxiliary network, besides those of masking and of the contrastive loss.

    Attributes:
      lexical_layers: frozen blocks of the starting encoder that read the changed sentence. Default
        8 of 12 (CMLM-CSE §4.1, Table 6).
      fusion_layers: Transformer blocks on top of them. Default 3 (CMLM-CSE §4.1, Table 6).
      conditioning: which h the network sees: `projected` (default), the vector that the contrastive
        loss compares, after the projection head: CMLM-CSE prints one h for both, DiffCSE's code has
        one too; `vector`, the sentence vector that is exported. Without a projection head both are
        the same. It is not normalised, even if the exported vector is.
    """

    lexical_layers: Annotated[int, at_least(1)] = 8
    fusion_layers: Annotated[int, between(1, 1024)] = 3
    conditioning: Annotated[str, OneOf(tuple(CONDITIONINGS))] = "projected"

    @property
    def has_lexical_layers(self) -> bool:
        """Whether the network has frozen blocks of the starting encoder."""
        return True

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if self.has_lexical_layers and self.lexical_layers > encoder_config.num_layers:
            raise UserError(
                f"{where}.lexical_layers must be 1 to encoder.num_layers "
                f"({encoder_config.num_layers}), got {self.lexical_layers}"
            )


class WithAuxiliary(Contrastive):
    """The contrastive loss with its factor, for objectives that add an auxiliary network's loss."""

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        contrast = super().compare(vectors)
        return dataclasses.replace(contrast, loss=self.config.contrastive_weight * contrast.loss)


@dataclasses.dataclass
class CmlmCseConfig(AuxiliaryConfig):
    """Settings of `cmlm_cse`; the masking rate 0.15 is Table 4's.

    Attributes:
      mlm_weight: λ of the masked-token loss. Default 0.005 (§4.1, Table 5). With 0 the auxiliary
        network is not computed, and the training equals SimCSE's bit for bit.
      contrastive_weight: factor of the contrastive loss. Default 1 (Eq. 6); 0 is the column "w/o
        contrastive loss" of Table 2.
    """

    mlm_weight: Annotated[float, at_least(0)] = 0.005

    def augments(self, special: SpecialIds) -> list[Augment]:
        return [self.mask_tokens("first", special)] if self.mlm_weight else []


@register("cmlm_cse")
class CmlmCse(WithAuxiliary):
    """The contrastive loss, and the masked-token loss of the auxiliary network."""

    config_class = CmlmCseConfig
    metric_directions = Contrastive.metric_directions | MASKED_METRICS

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        super().add_layers(encoder)
        self.auxiliary = None
        if self.config.mlm_weight:
            self.auxiliary = AuxiliaryNetwork(
                encoder.config, self.config.lexical_layers, self.config.fusion_layers
            )
            self.auxiliary.copy_from(encoder)

    def initialize(self, encoder: SentenceEncoderModel) -> None:
        if self.auxiliary is not None:
            self.auxiliary.copy_from(encoder)

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction | None:
        if self.auxiliary is None:
            return None
        masked = features["first_masked"]
        outputs = self.auxiliary(
            masked,
            vectors[CONDITIONINGS[self.config.conditioning]],
            masked["masked_lm_positions"],
            training=encode.training,
            stream=encode.stream("auxiliary"),
        )
        return predict_masked(self, outputs, masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        if self.auxiliary is None:
            return tf.constant(0.0)
        return num_masked(features["first_masked"])
