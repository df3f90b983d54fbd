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
    if max_similarity is not None:
        anchors, candidates = (tf.math.l2_normalize(x, axis=-1) for x in (anchors, candidates))
        cosines = tf.matmul(anchors, candidates, transpose_b=True)
        found = tf.logical_or(found, tf.stop_gradient(cosines) > max_similarity)
    return found
