"""Which candidates of a batch are no negatives of an anchor, though they are not its positive."""

import tensorflow as tf


def not_negatives(
    itself: tf.Tensor,
    anchors: tf.Tensor,
    candidates: tf.Tensor,
    anchor_texts: tf.Tensor | None = None,
    candidate_texts: tf.Tensor | None = None,
    max_similarity: float | None = None,
) -> tf.Tensor:
    """The positive, and what a loss must not push away.

    Candidate j is no negative of anchor i if its text is that of i's positive or of i itself, if
    its own anchor has the text of anchor i, or if its cosine with anchor i is above
    `max_similarity`. No gradient flows through the choice.

    Args:
      itself: bool `[batch, all]`, true where candidate j is anchor i's positive.
      anchors: float `[batch, dim]`.
      candidates: float `[all, dim]`.
      anchor_texts, candidate_texts: float32 `[all, 2]`, equal rows for equal texts, see
        `inputs.hashing.row_identity`; row j is of candidate j's anchor, and of candidate j. None:
        texts are not compared.
      max_similarity: None: similarities are not compared.

    Returns:
      bool `[batch, all]`.
    """
    found = itself
    if anchor_texts is not None:
        own = tf.argmax(tf.cast(itself, tf.int32), axis=1)
        own_anchor, own_candidate = tf.gather(anchor_texts, own), tf.gather(candidate_texts, own)
        for own_text, texts in (
            (own_anchor, anchor_texts),
            (own_anchor, candidate_texts),
            (own_candidate, candidate_texts),
        ):
            equal = tf.reduce_all(tf.equal(own_text[:, tf.newaxis], texts[tf.newaxis]), axis=2)
            found = tf.logical_or(found, equal)
    return _or_similar(found, anchors, candidates, max_similarity)


def not_hard_negatives(
    itself: tf.Tensor,
    anchors: tf.Tensor,
    negatives: tf.Tensor,
    present: tf.Tensor,
    anchor_texts: tf.Tensor | None = None,
    candidate_texts: tf.Tensor | None = None,
    negative_texts: tf.Tensor | None = None,
    max_similarity: float | None = None,
) -> tf.Tensor:
    """Which hard negatives, of any anchor, a loss must not push away from an anchor.

    Hard negative j is none of anchor i if it is missing, if its text is that of i's positive or of
    i itself, or if its cosine with anchor i is above `max_similarity`.

    Args:
      itself, anchors, anchor_texts, candidate_texts, max_similarity: see `not_negatives`.
      negatives: float `[all, dim]`.
      present: float `[all]`, 0 where there is no hard negative.
      negative_texts: float32 `[all, 2]`, as the other texts.

    Returns:
      bool `[batch, all]`.
    """
    found = tf.repeat((present == 0)[tf.newaxis], tf.shape(itself)[0], axis=0)
    if anchor_texts is not None:
        own = tf.argmax(tf.cast(itself, tf.int32), axis=1)
        for texts in (anchor_texts, candidate_texts):
            own_text = tf.gather(texts, own)[:, tf.newaxis]
            equal = tf.reduce_all(tf.equal(own_text, negative_texts[tf.newaxis]), axis=2)
            found = tf.logical_or(found, equal)
    return _or_similar(found, anchors, negatives, max_similarity)


def _or_similar(
    found: tf.Tensor, anchors: tf.Tensor, candidates: tf.Tensor, max_similarity: float | None
) -> tf.Tensor:
    if max_similarity is None:
        return found
    anchors, candidates = (tf.math.l2_normalize(x, axis=-1) for x in (anchors, candidates))
    cosines = tf.matmul(anchors, candidates, transpose_b=True)
    return tf.logical_or(found, tf.stop_gradient(cosines) > max_similarity)
