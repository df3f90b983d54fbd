"""Adjacent sentences as in-batch retrieval: the paper's baseline "QuickThought (CC)".

Logeswaran and Lee (2018) classify the true neighbour of a sentence among the other sentences of
the batch. Here the two share one Transformer encoder, as in CMLM §3.1, and the classification is an
additive margin softmax, the loss of CMLM's bitext retrieval (§4.2), in both directions.
"""

import dataclasses

import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.views import AdjacentPairs, SpecialIds
from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives.base import (
    Encode,
    Objective,
    ObjectiveConfig,
    ObjectiveOutput,
    register,
)


@dataclasses.dataclass
class QuickThoughtConfig(ObjectiveConfig):
    """Settings of `quick_thought`.

    Attributes:
      margin: subtracted from the true neighbour's similarity. Default 0.3 (CMLM §4.4).
      logit_scale: factor of the similarities, an inverse temperature. The papers give none;
        default 100, as Model Garden's LaBSE experiment has it for normalised vectors.
      normalize: compare cosines (default) or plain inner products.
      bidirectional: sum the losses of both directions (default; CMLM §4.2), or first → second only.
    """

    margin: float = 0.3
    logit_scale: float = 100.0
    normalize: bool = True
    bidirectional: bool = True


@register("quick_thought")
class QuickThought(Objective):
    """Finds each segment's neighbour among those of the whole global batch."""

    config_class = QuickThoughtConfig
    metric_names = ("retrieval_loss", "recall_at_1")

    @classmethod
    def check(cls, config: QuickThoughtConfig, encoder_config: object, where: str) -> None:
        super().check(config, encoder_config, where)
        if not config.logit_scale > 0:
            raise UserError(f"{where}.logit_scale must be above 0, got {config.logit_scale}")
        if config.margin < 0:
            raise UserError(f"{where}.margin must not be negative, got {config.margin}")

    @classmethod
    def view(
        cls, config: QuickThoughtConfig, data: DataConfig, special: SpecialIds
    ) -> AdjacentPairs:
        return AdjacentPairs(data.segment, data.seq_length, data.swap_probability, special)

    def call(self, features: dict, encode: Encode) -> ObjectiveOutput:
        first = encode(features["first"])["default"]
        second = encode(features["second"])["default"]
        losses, hits = self._direction(first, second)
        if self.config.bidirectional:
            backward, _ = self._direction(second, first)
            losses += backward
        count = tf.cast(tf.shape(losses)[0], tf.float32)
        total = tf.reduce_sum(losses)
        return ObjectiveOutput(
            loss=total / count,
            metrics={
                "retrieval_loss": (total, count),
                "recall_at_1": (tf.reduce_sum(hits), count),
            },
        )

    def _direction(self, anchors: tf.Tensor, candidates: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        everybody, offset = gather(candidates)
        return additive_margin_softmax(
            anchors,
            everybody,
            offset,
            margin=self.config.margin,
            logit_scale=self.config.logit_scale,
            normalize=self.config.normalize,
        )
