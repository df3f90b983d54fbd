"""Matryoshka representation learning: a comparison's loss for the first components of vectors too.

Kusupati et al. 2022, "Matryoshka Representation Learning", Eq. 1: the sum of the same loss over the
vectors' first m components, for each m of a list, with a weight each.
"""

import tensorflow as tf

from official_cmlm.losses.blocks import Losses, Reduction


def with_shorter_vectors(reduction: Reduction, weights: dict[int, float]) -> Reduction:
    """Returns a reduction that also sums the losses of the vectors' first components.

    Vectors are cut before the loss sees them, so that a loss which normalises does so for each
    size. They are gathered from the replicas before that, whole and once. The sizes are summed one
    after another, so similarities take the memory of one size.

    Args:
      reduction: sums the losses of vectors of one size.
      weights: number of first components -> weight; whole vectors have weight 1 unless they are
        named.

    Returns:
      A function whose sum of losses is the weighted one over all sizes; its sum of hits is that of
      whole vectors.
    """

    def reduce_each_size(
        losses: Losses, anchors: tf.Tensor, others: tuple[tf.Tensor, ...]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # Vectors are cast here, and not in `reduction`, as the gradients of all sizes must be added
        # in float32.
        anchors, *others = (tf.cast(vectors, tf.float32) for vectors in (anchors, *others))
        whole = anchors.shape[-1]
        total, hits = reduction(losses, anchors, tuple(others))
        total *= weights.get(whole, 1.0)
        for size, weight in weights.items():
            if size != whole:
                shorter = tuple(vectors[:, :size] for vectors in others)
                total += weight * reduction(losses, anchors[:, :size], shorter)[0]
        return total, hits

    return reduce_each_size
