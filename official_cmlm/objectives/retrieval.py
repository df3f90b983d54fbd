"""In-batch retrieval, which `quick_thought` and `bitext_retrieval` share."""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.limits import above, at_least
from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from official_cmlm.losses.blocks import Summed
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives.base import HIGHER, LOWER, ObjectiveConfig, ObjectiveOutput

METRIC_DIRECTIONS = {"retrieval_loss": LOWER, "recall_at_1": HIGHER}


@dataclasses.dataclass
class RetrievalConfig(ObjectiveConfig):
    """Settings of a retrieval among the sentences of a batch.

    Attributes:
      margin: subtracted from the right candidate's similarity. Default 0.3 (CMLM §4.4).
      logit_scale: factor of the similarities, an inverse temperature. The papers give none;
        default 100, as Model Garden's LaBSE experiment has it for normalised vectors.
      normalize: compare cosines (default) or plain inner products.
      bidirectional: sum the losses of both directions (default; CMLM §4.2), or first → second only.
    """

    margin: Annotated[float, at_least(0)] = 0.3
    logit_scale: Annotated[float, above(0)] = 100.0
    normalize: bool = True
    bidirectional: bool = True


def retrieval_output(
    first: tf.Tensor, second: tf.Tensor, config: RetrievalConfig, summed: Summed
) -> ObjectiveOutput:
    """Loss and recall@1 of finding row i of one side from row i of the other.

    Candidates are those of the whole global batch. Recall is that of first → second.

    Args:
      first, second: float `[batch, dim]`.
      config: see `RetrievalConfig`.
      summed: how losses are summed over the anchors.
    """

    def direction(anchors: tf.Tensor, candidates: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        all_candidates, offset = gather(candidates)

        def losses(
            part: tf.Tensor, start: tf.Tensor, all_candidates: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            return additive_margin_softmax(
                part,
                all_candidates,
                offset + start,
                margin=config.margin,
                logit_scale=config.logit_scale,
                normalize=config.normalize,
            )

        return summed(losses, anchors, (all_candidates,))

    total, hits = direction(first, second)
    if config.bidirectional:
        total += direction(second, first)[0]
    count = tf.cast(tf.shape(first)[0], tf.float32)
    return ObjectiveOutput(
        loss=total / count,
        metrics={"retrieval_loss": (total, count), "recall_at_1": (hits, count)},
    )
