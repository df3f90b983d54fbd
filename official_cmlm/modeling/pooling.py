"""From token outputs to one vector a sentence."""

import tensorflow as tf

# Poolings that read only the first token's output of the last block.
FIRST_TOKEN_POOLINGS = ("cls", "cls_pooler")


def sentence_vector(
    layers: list[tf.Tensor], pooled_cls: tf.Tensor, mask: tf.Tensor, pooling: str
) -> tf.Tensor:
    """The sentence vector that `EncoderConfig.pooling` names.

    Args:
      layers: each block's outputs, float `[batch, seq, hidden]`; only the first and last are read.
      pooled_cls: BERT's pooler on the first token, float `[batch, hidden]`.
      mask: see `pool`.
      pooling: one of `configs.encoder.POOLINGS`.

    Returns:
      float32 `[batch, hidden]`.
    """
    if pooling == "cls_pooler":
        return tf.cast(pooled_cls, tf.float32)
    if pooling == "first_last":
        both = (tf.cast(layers[0], tf.float32) + tf.cast(layers[-1], tf.float32)) / 2
        return pool(both, mask, "mean")
    return pool(layers[-1], mask, pooling)


def pool(sequence_output: tf.Tensor, mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """Pools token outputs over real tokens.

    Args:
      sequence_output: float `[batch, seq, hidden]`.
      mask: int `[batch, seq]`, 1 for real tokens (special ones included), 0 for padding.
      pooling: `mean`, `max` or `cls` (CMLM §2, footnote 1, and Table 9).

    Returns:
      float32 `[batch, hidden]`; zeros for `mean` and `max` where a row has no real token.
    """
    outputs = tf.cast(sequence_output, tf.float32)
    if pooling == "cls":
        return outputs[:, 0]
    real = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    if pooling == "max":
        largest = tf.reduce_max(tf.where(real > 0, outputs, outputs.dtype.min), axis=1)
        return tf.where(tf.reduce_any(real > 0, axis=1), largest, 0.0)
    if pooling == "mean":
        return tf.math.divide_no_nan(
            tf.reduce_sum(outputs * real, axis=1), tf.reduce_sum(real, axis=1)
        )
    raise ValueError(f"pooling must be mean, max or cls; got {pooling!r}")
