"""Candidates that are excluded from an anchor's negatives, though they are not its positive."""

import tensorflow as tf


def not_negatives(
    itself: tf.Tensor,
    anchor_texts: tf.Tensor | None = None,
    candidate_texts: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns which candidates must not be pushed away: the positive, and those of equal text.

    Candidate j is excluded for anchor i if its text is that of i's positive or of i itself, or if
    its own anchor has the text of anchor i.

    Args:
      itself: bool `[batch, all]`, true where candidate j is anchor i's positive.
      anchor_texts, candidate_texts: float32 `[all, 2]`, equal rows for equal texts, see
        `inputs.hashing.row_identity`; row j is the text of candidate j's anchor, and of candidate
        j. None: texts are not compared.

    Returns:
      bool `[batch, all]`.
    """
    excluded = itself
    if anchor_texts is not None:
        own = tf.argmax(tf.cast(itself, tf.int32), axis=1)
        own_anchor, own_candidate = tf.gather(anchor_texts, own), tf.gather(candidate_texts, own)
        for own_text, texts in (
            (own_anchor, anchor_texts),
            (own_anchor, candidate_texts),
            (own_candidate, candidate_texts),
        ):
            excluded = tf.logical_or(excluded, _equal(own_text, texts))
    return excluded


def not_hard_negatives(
    itself: tf.Tensor,
    present: tf.Tensor,
    anchor_texts: tf.Tensor | None = None,
    candidate_texts: tf.Tensor | None = None,
    negative_texts: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns where a hard negative, of any anchor, must not be pushed away from an anchor.

    Hard negative j is excluded for anchor i if it is missing, or if its text is that of i itself or
    of a positive of any anchor with the text of i.

    Args:
      itself, anchor_texts, candidate_texts: see `not_negatives`.
      present: float `[all]`, 0 where the hard negative is missing.
      negative_texts: float32 `[all, 2]`, as the other texts.

    Returns:
      bool `[batch, all]`.
    """
    excluded = tf.repeat((present == 0)[tf.newaxis], tf.shape(itself)[0], axis=0)
    if anchor_texts is not None:
        own = tf.argmax(tf.cast(itself, tf.int32), axis=1)
        own_anchor = tf.gather(anchor_texts, own)
        excluded = tf.logical_or(excluded, _equal(own_anchor, negative_texts))
        # "A row has i's text as its anchor and j's as its positive" is a product of matrices. It is
        # computed for as many rows at a time as there are anchors, so that no factor is larger than
        # the result.
        count, step = tf.shape(anchor_texts)[0], tf.shape(itself)[0]

        def more(start: tf.Tensor, excluded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # Beyond the last row, that row is repeated: XLA needs the same number of rows each
            # time.
            rows = tf.minimum(start + tf.range(step), count - 1)
            same = tf.cast(_equal(own_anchor, tf.gather(anchor_texts, rows)), tf.float32)
            right = _equal(tf.gather(candidate_texts, rows), negative_texts)
            right = tf.matmul(same, tf.cast(right, tf.float32)) > 0
            return start + step, tf.logical_or(excluded, right)

        _, excluded = tf.while_loop(
            lambda start, _: start < count, more, [tf.constant(0), excluded], parallel_iterations=1
        )
    return excluded


def _equal(some: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Compares all pairs of texts: float32 `[m, 2]` and `[n, 2]` -> bool `[m, n]`."""
    return tf.reduce_all(tf.equal(some[:, tf.newaxis], others[tf.newaxis]), axis=2)
