"""Multi-similarity loss with mined pairs: the alternative of Mirror-BERT's footnote 2."""

import tensorflow as tf

from official_cmlm.losses.negatives import not_negatives

# Smaller than any similarity times a factor, yet finite.
_EXCLUDED = -1e9


def multi_similarity(
    anchors: tf.Tensor,
    own_view: tf.Tensor,
    other_view: tf.Tensor,
    offset: tf.Tensor | int = 0,
    *,
    alpha: float,
    beta: float,
    base: float,
    mining_margin: float,
    texts: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Computes a loss that moves mined pairs to the right side of a similarity.

    The further a pair is on the wrong side, the larger is its gradient.

    With s the cosine, p_i the anchor's other view and λ the base (Wang et al. 2019, Eq. 16):

        ℓ_i = log(1 + exp(−α(s(a_i, p_i) − λ))) / α
            + log(1 + Σ_{n ∈ N_i} exp(β(s(a_i, n) − λ))) / β

    N_i are the other vectors of both views whose distance from the anchor is at most that of its
    positive plus the margin: the hard triplets of Liu et al. 2021 (SapBERT), by the Euclidean
    distance of vectors of length 1. An anchor without any has the loss 0.

    Args:
      anchors, own_view, other_view, offset, texts: see `losses.nt_xent`.
      alpha, beta: factors of the similarities of positives and of negatives.
      base: λ, the cosine that divides positives from negatives.
      mining_margin: largest difference of the two distances at which a triplet is mined.

    Returns:
      float32 `[batch]` losses; and float32 `[batch]`, 1 where the positive is the nearest of all.
    """
    anchors, own_view, other_view = (
        tf.math.l2_normalize(tf.cast(x, tf.float32), axis=-1)
        for x in (anchors, own_view, other_view)
    )
    labels = tf.range(tf.shape(anchors)[0]) + offset
    itself = tf.one_hot(labels, tf.shape(other_view)[0], on_value=True, off_value=False)
    cosines, excluded = [], []
    for view in (other_view, own_view):
        cosines.append(tf.matmul(anchors, view, transpose_b=True))
        excluded.append(not_negatives(itself, texts, texts))
    positives = tf.reduce_sum(tf.where(itself, cosines[0], 0.0), axis=1)
    cosines, excluded = tf.concat(cosines, axis=1), tf.concat(excluded, axis=1)
    distances = _distance(cosines) - _distance(positives)[:, tf.newaxis]
    mined = tf.logical_and(tf.stop_gradient(distances) <= mining_margin, ~excluded)
    any_mined = tf.reduce_any(mined, axis=1)
    logits = tf.where(mined, beta * (cosines - base), _EXCLUDED)
    of_negatives = tf.reduce_logsumexp(tf.pad(logits, [[0, 0], [0, 1]]), axis=1)
    losses = tf.math.softplus(-alpha * (positives - base)) / alpha + of_negatives / beta
    hits = positives > tf.reduce_max(tf.where(excluded, -2.0, cosines), axis=1)
    return tf.where(any_mined, losses, 0.0), tf.cast(hits, tf.float32)


def _distance(cosines: tf.Tensor) -> tf.Tensor:
    """Returns the Euclidean distance of vectors of length 1 with these cosines."""
    return tf.sqrt(tf.maximum(2.0 - 2.0 * cosines, 0.0))
