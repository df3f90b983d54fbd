"""Cross-entropy of predicted tokens."""

import tensorflow as tf


def masked_cross_entropy(
    logits: tf.Tensor, ids: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sums over predictions; divide by the weight to get the mean per predicted token.

    Args:
      logits: float `[…, vocab]`.
      ids: int32 `[…]`, the original tokens.
      weights: float32 `[…]`, 0 for unused slots.

    Returns:
      float32 scalars: the sum of weighted losses in nats, the number of correct predictions, and
      the sum of weights.
    """
    logits = tf.cast(logits, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits)
    correct = tf.cast(tf.equal(tf.argmax(logits, axis=-1, output_type=ids.dtype), ids), tf.float32)
    return (
        tf.reduce_sum(losses * weights),
        tf.reduce_sum(correct * weights),
        tf.reduce_sum(weights),
    )
