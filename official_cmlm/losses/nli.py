"""Natural language inference from two sentence vectors (CMLM §4.3)."""

import tensorflow as tf


def nli_features(premise: tf.Tensor, hypothesis: tf.Tensor) -> tf.Tensor:
    """Returns [u, v, |u − v|, u ∗ v], float32 `[batch, 4 · dim]`, for vectors `[batch, dim]`."""
    u, v = tf.cast(premise, tf.float32), tf.cast(hypothesis, tf.float32)
    return tf.concat([u, v, tf.abs(u - v), u * v], axis=-1)


def nli_loss(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the cross-entropy of each pair's label.

    Args:
      logits: float `[batch, classes]`.
      labels: int32 `[batch]`.

    Returns:
      float32 `[batch]` losses in nats, and float32 `[batch]`, 1 where the label is the likeliest.
    """
    logits = tf.cast(logits, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    hits = tf.equal(tf.argmax(logits, axis=-1, output_type=labels.dtype), labels)
    return losses, tf.cast(hits, tf.float32)
