"""Losses of pairs whose similarity people have graded, from 0 (unrelated) to 1 (the same).

Cosine regression (Reimers and Gurevych 2019, "Sentence-BERT", §3) brings the cosine to the grade.
CoSENT (Su 2022, "CoSENT: Consistency Sentence Embedding via Similarity Score") only orders: a pair
with a higher grade shall have a higher similarity. AnglE (Li and Li 2024, "AoE: Angle-optimized
Embeddings for Semantic Textual Similarity", Eq. 6 to 8) orders by an angle in place of the cosine.
"""

import tensorflow as tf


def cosines(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Returns the cosine of each pair, float32 `[pairs]`; both float `[pairs, dim]`."""
    return tf.reduce_sum(_unit(first) * _unit(second), axis=-1)


def angles(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Returns |Σ Re q + Σ Im q| of each pair, with q = z w* / (|z| |w|), float32 `[pairs]`.

    The first half of a vector has the real parts of z or w, the second half the imaginary ones. The
    real parts of q add up to the cosine. The absolute value of the sum is from the authors' code.

    Args:
      first, second: float `[pairs, dim]`, dim even.
    """
    (a, b), (c, d) = (tf.split(_unit(side), 2, axis=-1) for side in (first, second))
    return tf.abs(cosines(first, second) + tf.reduce_sum(b * c - a * d, axis=-1))


def cosine_errors(first: tf.Tensor, second: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns (cosine − score)² of each pair, float32 `[pairs]`; `scores` float `[pairs]`."""
    return tf.math.squared_difference(cosines(first, second), tf.cast(scores, tf.float32))


def cosent(similarities: tf.Tensor, scores: tf.Tensor, scale: float) -> tf.Tensor:
    r"""Computes the loss of pairs that are ordered otherwise than their scores.

        ℓ = log(1 + Σ_{i, j: y_i > y_j} exp(scale · (s_j − s_i)))

    Args:
      similarities: s, float `[pairs]`, of the whole global batch.
      scores: y, float `[pairs]`; pairs of equal scores are not compared.
      scale: the inverse of a temperature.

    Returns:
      float32 scalar, in nats; 0 if all scores are equal.
    """
    similarities, scores = tf.cast(similarities, tf.float32), tf.cast(scores, tf.float32)
    differences = scale * (similarities[tf.newaxis, :] - similarities[:, tf.newaxis])
    ordered = scores[:, tf.newaxis] > scores[tf.newaxis, :]
    # A finite number in place of −∞ keeps the gradient finite.
    terms = tf.where(ordered, differences, -1e9)
    return tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(terms, [-1])], axis=0))


def _unit(vectors: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)
