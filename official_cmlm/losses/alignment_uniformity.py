"""Alignment and uniformity of sentence vectors on the unit sphere.

Wang and Isola 2020, "Understanding Contrastive Representation Learning through Alignment and
Uniformity on the Hypersphere", §4.1, with their exponents α = 2 and t = 2. Good vectors have low
values of both; the paper's experiments (§5) train encoders by weighted sums of the two.
"""

import tensorflow as tf

from official_cmlm.losses.blocks import Reduction
from official_cmlm.losses.replicas import gather

_POTENTIAL = 2.0


def alignment_and_uniformity(
    first: tf.Tensor, second: tf.Tensor, reduction: Reduction
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Measures two views of the same examples; no gradient flows through it.

    Args:
      first, second: float `[batch, dim]`, this replica's share of the global batch.
      reduction: sums over the examples; it need not compute gradients.

    Returns:
      Metrics as in `ObjectiveOutput`: `alignment`, the mean squared distance of an example's views;
      `uniformity`, the logarithm of the mean over pairs of different examples of exp(-2 d²), d the
      distance of their first views; `alignment_uniformity`, the sum. The last two have weight 0 if
      the global batch has one example.
    """
    first, second = (
        tf.stop_gradient(tf.math.l2_normalize(tf.cast(x, tf.float32), axis=-1))
        for x in (first, second)
    )
    everything, offset = gather(first)

    def potentials(part: tf.Tensor, start: tf.Tensor, others: tf.Tensor) -> tuple:
        rows = tf.range(tf.shape(part)[0]) + start + offset
        itself = tf.one_hot(rows, tf.shape(others)[0], on_value=True, off_value=False)
        squares = 2.0 - 2.0 * tf.matmul(part, others, transpose_b=True)
        pairwise = tf.where(itself, 0.0, tf.exp(-_POTENTIAL * squares))
        # Otherwise `sum_in_blocks` would compute the gradient of every similarity.
        sums = tf.stop_gradient(tf.reduce_sum(pairwise, axis=1))
        return sums, tf.zeros_like(rows, tf.float32)

    count = tf.cast(tf.shape(first)[0], tf.float32)
    total, _ = reduction(potentials, first, (everything,))
    # `totals` has one row for each replica.
    totals, _ = gather(tf.stop_gradient(total)[tf.newaxis])
    examples = tf.cast(tf.shape(everything)[0], tf.float32)
    pairs = examples * (examples - 1.0)
    uniformity = tf.math.log(tf.where(pairs > 0, tf.reduce_sum(totals) / pairs, 1.0))
    weight = tf.where(pairs > 0, count, 0.0)
    distances = tf.reduce_sum(tf.math.squared_difference(first, second))
    return {
        "alignment": (distances, count),
        "uniformity": (weight * uniformity, weight),
        "alignment_uniformity": (tf.where(pairs > 0, distances, 0.0) + weight * uniformity, weight),
    }
