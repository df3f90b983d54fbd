"""Matryoshka representation learning: a comparison's loss for the first components of vectors too.

Kusupati et al. 2022, "Matryoshka Representation Learning", Eq. 1: the sum of the same loss over the
vectors' first m components, for each m of a list, with a weight each.
"""

import tensorflow as tf

from official_cmlm.losses.blocks import Losses, Summed


def with_shorter_vectors(summed: Summed, weights: dict[int, float]) -> Summed:
    """How losses are summed, of whole vectors and of their first components.

    Vectors are cut before the loss sees them, so that one which normalises does so for each size.
    They are gathered from the replicas before, whole and once. Each size is summed by itself, so
    the memory of similarities is that of one.

    Args:
      summed: how the losses of vectors of one size are summed.
      weights: number of first components -> weight; that of whole vectors is 1 unless it is named.

    Returns:
      A function whose sum of losses is the weighted one over all sizes; its sum of hits is that of
      whole vectors.
    """

    def nested(
        losses: Losses, anchors: tf.Tensor, others: tuple[tf.Tensor, ...]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # Here, and not in `summed`: the gradients of all sizes must be added in float32.
        anchors, *others = (tf.cast(vectors, tf.float32) for vectors in (anchors, *others))
        whole = anchors.shape[-1]
        total, hits = summed(losses, anchors, tuple(others))
        total *= weights.get(whole, 1.0)
        for size, weight in weights.items():
            if size != whole:
                shorter = tuple(vectors[:, :size] for vectors in others)
                total += weight * summed(losses, anchors[:, :size], shorter)[0]
        return total, hits

    return nested
