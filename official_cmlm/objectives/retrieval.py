"""In-batch retrieval, which `quick_thought` and `bitext_retrieval` share."""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.common.validation import above, at_least
from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from official_cmlm.losses.blocks import Reduction
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives.base import HIGHER, LOWER, ObjectiveOutput, Vectors
from official_cmlm.objectives.in_batch import InBatchConfig, gather_texts

METRIC_DIRECTIONS = {"retrieval_loss": LOWER, "recall_at_1": HIGHER}


@dataclasses.dataclass
class RetrievalConfig(InBatchConfig):
    """Settings of a retrieval among the sentences of a batch.

    Attributes:
      margin: subtracted from the right candidate's similarity. Default 0.3 (CMLM §4.4).
      logit_scale: factor of the similarities, an inverse temperature. The papers give none;
        default 100, as Model Garden's LaBSE experiment has it for normalised vectors.
      normalize: whether cosines are compared (default), or plain inner products.
      bidirectional: whether the losses of both directions are summed (default; CMLM §4.2), or there
        is first → second only.
    """

    margin: Annotated[float, at_least(0)] = 0.3
    logit_scale: Annotated[float, above(0)] = 100.0
    normalize: bool = True
    bidirectional: bool = True


def retrieval_vectors(
    first: tf.Tensor,
    second: tf.Tensor,
    features: dict,
    config: RetrievalConfig,
    negative: tf.Tensor | None = None,
) -> Vectors:
    """Returns what `retrieval_output` compares: the vectors of all sides, their texts if needed.

    Args:
      first, second: float `[batch, dim]`.
      features, config: features of the batch, settings of the objective.
      negative: float `[batch, dim]`, the hard negatives; without a meaning where `has_negative` of
        the features is 0. None: there are none.
    """
    sides = {"first": first, "second": second}
    vectors = dict(sides)
    if negative is not None:
        sides["negative"] = vectors["negative"] = negative
        vectors["has_negative"] = tf.cast(features["has_negative"], tf.float32)[:, tf.newaxis]
    texts = {
        f"{side}_texts": value for side in sides for value in config.texts(features[side]).values()
    }
    return vectors | texts


def retrieval_output(
    vectors: Vectors, config: RetrievalConfig, reduction: Reduction, negative_weight: float = 0.0
) -> ObjectiveOutput:
    """Computes loss and recall@1 of finding row i of one side from row i of the other.

    Candidates come from the whole global batch; first → second, its hard negatives are candidates
    too. Recall is measured first → second.

    Args:
      vectors, config: see `retrieval_vectors`.
      reduction: sums the losses over the anchors.
      negative_weight: see `additive_margin_softmax`.
    """
    hard = "negative" in vectors

    def direction(of_anchors: str, of_candidates: str) -> tuple[tf.Tensor, tf.Tensor]:
        all_candidates, offset = gather(vectors[of_candidates])
        anchor_texts = gather_texts(vectors.get(f"{of_anchors}_texts"))
        candidate_texts = gather_texts(vectors.get(f"{of_candidates}_texts"))
        others, more = (all_candidates,), {}
        # As in sentence-transformers and SimCSE, second → first does not compare hard negatives.
        if hard and of_anchors == "first":
            others += (gather(vectors["negative"])[0],)
            more = {
                "present": tf.stop_gradient(gather(vectors["has_negative"])[0])[:, 0],
                "negative_texts": gather_texts(vectors.get("negative_texts")),
                "negative_weight": negative_weight,
            }

        def losses(
            part: tf.Tensor,
            start: tf.Tensor,
            all_candidates: tf.Tensor,
            all_negatives: tf.Tensor | None = None,
        ) -> tuple[tf.Tensor, tf.Tensor]:
            return additive_margin_softmax(
                part,
                all_candidates,
                offset + start,
                margin=config.margin,
                logit_scale=config.logit_scale,
                normalize=config.normalize,
                anchor_texts=anchor_texts,
                candidate_texts=candidate_texts,
                negatives=all_negatives,
                **more,
            )

        return reduction(losses, vectors[of_anchors], others)

    total, hits = direction("first", "second")
    if config.bidirectional:
        total += direction("second", "first")[0]
    count = tf.cast(tf.shape(vectors["first"])[0], tf.float32)
    return ObjectiveOutput(
        loss=total / count,
        metrics={"retrieval_loss": (total, count), "recall_at_1": (hits, count)},
    )
