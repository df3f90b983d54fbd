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
            found = tf.logical_or(found, _equal(own_text, texts))
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

    Hard negative j is none of anchor i if it is missing, if its text is that of i itself or of a
    positive of any anchor with the text of i, or if its cosine with anchor i is above
    `max_similarity`.

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
        own_anchor = tf.gather(anchor_texts, own)
        found = tf.logical_or(found, _equal(own_anchor, negative_texts))
        # That any row has i's text as its anchor and j's as its positive is a product of matrices.
        # By as many rows at a time as there are anchors, so that none is larger than the result.
        count, step = tf.shape(anchor_texts)[0], tf.shape(itself)[0]

        def more(start: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # The last row stands in for rows beyond it: XLA needs as many of them each time.
            rows = tf.minimum(start + tf.range(step), count - 1)
            same = tf.cast(_equal(own_anchor, tf.gather(anchor_texts, rows)), tf.float32)
            right = _equal(tf.gather(candidate_texts, rows), negative_texts)
            right = tf.matmul(same, tf.cast(right, tf.float32)) > 0
            return start + step, tf.logical_or(found, right)

        _, found = tf.while_loop(
            lambda start, _: start < count, more, [tf.constant(0), found], parallel_iterations=1
        )
    return _or_similar(found, anchors, negatives, max_similarity)


def _equal(some: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Which texts equal which: float32 `[m, 2]` and `[n, 2]` -> bool `[m, n]`."""
    return tf.reduce_all(tf.equal(some[:, tf.newaxis], others[tf.newaxis]), axis=2)


def _or_similar(
    found: tf.Tensor, anchors: tf.Tensor, candidates: tf.Tensor, max_similarity: float | None
) -> tf.Tensor:
    if max_similarity is None:
        return found
    anchors, candidates = (tf.math.l2_normalize(x, axis=-1) for x in (anchors, candidates))
    cosines = tf.matmul(anchors, candidates, transpose_b=True)
    return tf.logical_or(found, tf.stop_gradient(cosines) > max_similarity)
