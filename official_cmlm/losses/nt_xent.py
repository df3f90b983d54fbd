"""NT-Xent: the contrastive loss of SimCSE, Mirror-BERT, CMLM-CSE and DeCLUTR."""

import tensorflow as tf

from official_cmlm.losses.negatives import not_negatives

# Smaller than any similarity over a temperature, yet finite.
_EXCLUDED = -1e9
NEGATIVES = ("other_view", "both_views")


def nt_xent(
    anchors: tf.Tensor,
    own_view: tf.Tensor,
    other_view: tf.Tensor,
    offset: tf.Tensor | int = 0,
    *,
    temperature: float,
    negatives: str,
    positive_in_denominator: bool = True,
    texts: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Computes the cross-entropy of finding each anchor's other view, in one direction.

    With s the cosine over the temperature and N_i the negatives of anchor i:

        ℓ_i = −log( exp s(a_i, b_i) / ([exp s(a_i, b_i)] + Σ_{c ∈ N_i} exp s(a_i, c)) )

    N_i are the other views of all other anchors (`other_view`: SimCSE, CMLM-CSE Eq. 1), or these
    and all other anchors themselves (`both_views`: Mirror-BERT §2.3, DeCLUTR §3.1). The term in
    brackets is left out unless `positive_in_denominator` (Mirror-BERT prints Eq. 1 without it, its
    code has it).

    Args:
      anchors: float `[batch, dim]`.
      own_view: float `[all, dim]`; anchor i is its row `offset + i`.
      other_view: float `[all, dim]`; the positive of anchor i is its row `offset + i`. Both views
        are gathered from all replicas, see `losses.replicas.gather`.
      offset: int scalar, row of the first anchor.
      temperature: above 0.
      negatives: one of `NEGATIVES`.
      positive_in_denominator: see above.
      texts: float32 `[all, 2]`, equal rows for equal texts: candidates with an anchor's own text
        are left out of its negatives. None: texts are not compared.

    Returns:
      float32 `[batch]` losses in nats, 0 where an anchor has neither a negative nor its positive;
      and float32 `[batch]`, 1 where the positive is the nearest of all candidates.
    """
    anchors, own_view, other_view = (
        tf.math.l2_normalize(tf.cast(x, tf.float32), axis=-1)
        for x in (anchors, own_view, other_view)
    )
    labels = tf.range(tf.shape(anchors)[0]) + offset
    itself = tf.one_hot(labels, tf.shape(other_view)[0], on_value=True, off_value=False)
    excluded = not_negatives(itself, texts, texts)
    logits = tf.matmul(anchors, other_view, transpose_b=True) / temperature
    positives = tf.reduce_sum(tf.where(itself, logits, 0.0), axis=1)
    others = tf.where(excluded, _EXCLUDED, logits)
    if negatives == "both_views":
        same = tf.matmul(anchors, own_view, transpose_b=True) / temperature
        others = tf.concat([others, tf.where(excluded, _EXCLUDED, same)], axis=1)
    hits = tf.cast(positives > tf.reduce_max(others, axis=1), tf.float32)
    any_negative = tf.reduce_max(others, axis=1) > _EXCLUDED / 2
    if positive_in_denominator:
        others = tf.concat([others, positives[:, tf.newaxis]], axis=1)
    losses = tf.reduce_logsumexp(others, axis=1) - positives
    if not positive_in_denominator:
        losses = tf.where(any_negative, losses, 0.0)
    return losses, hits
