"""From token outputs to one vector a sentence."""

import tensorflow as tf


def pool(sequence_output: tf.Tensor, mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """Pools token outputs over real tokens.

    Args:
      sequence_output: float `[batch, seq, hidden]`.
      mask: int `[batch, seq]`, 1 for real tokens (special ones included), 0 for padding.
      pooling: `mean`, `max` or `cls` (CMLM §2, footnote 1, and Table 9).

    Returns:
      float32 `[batch, hidden]`; zeros for `mean` where a row has no real token.
    """
    outputs = tf.cast(sequence_output, tf.float32)
    if pooling == "cls":
        return outputs[:, 0]
    real = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    if pooling == "max":
        return tf.reduce_max(tf.where(real > 0, outputs, outputs.dtype.min), axis=1)
    if pooling == "mean":
        return tf.math.divide_no_nan(
            tf.reduce_sum(outputs * real, axis=1), tf.reduce_sum(real, axis=1)
        )
    raise ValueError(f"pooling must be mean, max or cls; got {pooling!r}")
