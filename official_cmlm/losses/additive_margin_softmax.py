"""Additive margin softmax: in-batch retrieval in which the right candidate must win by a margin."""

import tensorflow as tf

from official_cmlm.losses.negatives import not_hard_negatives, not_negatives

# Smaller than any similarity times a scale, yet finite.
_EXCLUDED = -1e9


def additive_margin_softmax(
    anchors: tf.Tensor,
    candidates: tf.Tensor,
    offset: tf.Tensor | int = 0,
    *,
    margin: float,
    logit_scale: float,
    normalize: bool = True,
    anchor_texts: tf.Tensor | None = None,
    candidate_texts: tf.Tensor | None = None,
    negatives: tf.Tensor | None = None,
    present: tf.Tensor | None = None,
    negative_texts: tf.Tensor | None = None,
    negative_weight: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Computes the cross-entropy of finding each anchor's candidate among all, in one direction.

    With φ the inner product (cosine if `normalize`), s the scale and m the margin:

        p_i = exp(s(φ(a_i, c_i) − m))        n_i = Σ_{j≠i} exp(s·φ(a_i, c_j))
        ℓ_i = −log( p_i / (p_i + n_i) )

    CMLM §4.2, after Yang et al. 2019b; CMLM's formula omits the logarithm, that of Yang et al. has
    it. With hard negatives h of all anchors, n_i also contains, for the negatives that are present
    and with w the weight,

        Σ_j exp(s·φ(a_i, h_j) + w·[i = j])

    as in the supervised loss of SimCSE (Gao et al. 2021, Eq. 5 and appendix B, where w = log α;
    `hard_negative_weight` of their code).

    Args:
      anchors: float `[batch, dim]`.
      candidates: float `[all, dim]`, gathered from all replicas, see `losses.replicas.gather`;
        candidate `offset + i` belongs to anchor i.
      offset: int scalar, row of the first anchor's candidate.
      margin: m, subtracted from the right candidate's similarity before scaling; 0 is plain
        softmax.
      logit_scale: s, the inverse of a temperature.
      normalize: L2-normalise both sides first.
      anchor_texts, candidate_texts: see `losses.negatives.not_negatives`.
      negatives: h, float `[all, dim]`, gathered too; row `offset + i` is anchor i's own. None:
        there are none.
      present, negative_texts: see `losses.negatives.not_hard_negatives`.
      negative_weight: w, in nats.

    Returns:
      float32 `[batch]` losses in nats, and float32 `[batch]`, 1 where the right candidate has the
      largest similarity of all (without margin).
    """
    anchors, candidates = tf.cast(anchors, tf.float32), tf.cast(candidates, tf.float32)
    if normalize:
        anchors = tf.math.l2_normalize(anchors, axis=-1)
        candidates = tf.math.l2_normalize(candidates, axis=-1)
    similarity = tf.matmul(anchors, candidates, transpose_b=True)
    labels = tf.range(tf.shape(anchors)[0]) + offset
    itself = tf.one_hot(labels, tf.shape(candidates)[0], on_value=True, off_value=False)
    excluded = not_negatives(itself, anchor_texts, candidate_texts)
    similarity = tf.where(tf.logical_and(excluded, ~itself), _EXCLUDED, similarity)
    logits = logit_scale * (similarity - margin * tf.cast(itself, tf.float32))
    if negatives is not None:
        hard = tf.cast(negatives, tf.float32)
        hard = tf.math.l2_normalize(hard, axis=-1) if normalize else hard
        texts = (anchor_texts, candidate_texts, negative_texts)
        excluded = not_hard_negatives(itself, present, *texts)
        of_hard = tf.matmul(anchors, hard, transpose_b=True)
        of_hard = tf.where(excluded, _EXCLUDED, of_hard)
        own = negative_weight * tf.cast(itself, tf.float32)
        logits = tf.concat([logits, logit_scale * of_hard + own], axis=1)
        similarity = tf.concat([similarity, of_hard], axis=1)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    hits = tf.equal(tf.argmax(similarity, axis=-1, output_type=tf.int32), labels)
    return losses, tf.cast(hits, tf.float32)
