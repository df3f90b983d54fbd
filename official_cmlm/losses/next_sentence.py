"""BERT's next-sentence prediction (Devlin et al. 2019, §3.1)."""

import tensorflow as tf


def next_sentence_loss(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the cross-entropy of each pair's class.

    Args:
      logits: float `[batch, 2]`.
      labels: float `[batch, 2]`, 1 for the class.

    Returns:
      float32 `[batch]` losses in nats, and float32 `[batch]`, 1 where the class is the likelier.
    """
    logits, labels = tf.cast(logits, tf.float32), tf.cast(labels, tf.float32)
    losses = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    hits = tf.equal(tf.argmax(logits, axis=-1), tf.argmax(labels, axis=-1))
    return losses, tf.cast(hits, tf.float32)
