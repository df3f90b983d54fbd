"""Dropout of the encoder: of units, of whole attention heads, and shared by two views.

Model Garden's Transformer block is kept as it is; only its dropout layers, which hold no weights,
are replaced by these.
"""

import dataclasses

import tensorflow as tf
import tf_keras


@dataclasses.dataclass
class DropoutMode:
    """What all dropout layers of one encoder share; set while a call is traced.

    Attributes:
      views: 1, every row of the batch draws its own masks; 2, the batch is two views of the same
        examples, end to end, and both halves have the same masks ("controlled dropout",
        Mirror-BERT §4.4 and Table 8).
    """

    views: int = 1


class SharedDropout(tf_keras.layers.Dropout):
    """Keras dropout whose masks the views of a batch may share."""

    def __init__(self, rate: float, mode: DropoutMode, **kwargs) -> None:  # noqa: ANN003 - Keras'
        super().__init__(rate, **kwargs)
        self._mode = mode

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Drops units of `[batch, …]`."""
        if not training or not self.rate:
            return inputs
        if self._mode.views == 1:
            return super().call(inputs, training=training)
        by_view, shape = _by_view(inputs, self._mode.views)
        noise_shape = tf.concat([[1], tf.shape(by_view)[1:]], axis=0)
        dropped = self._random_generator.dropout(by_view, self.rate, noise_shape=noise_shape)
        return tf.reshape(dropped, shape)


class AttentionDropout(SharedDropout):
    """Dropout of attention weights, then of whole heads.

    Drophead (Zhou et al. 2020, "Scheduled DropHead"; Mirror-BERT §4.4): each head of each example
    is dropped with `drophead_rate`, and the survivors are multiplied by heads / survivors. With no
    survivor the block passes on what it got.
    """

    def __init__(self, rate: float, drophead_rate: float, mode: DropoutMode, **kwargs) -> None:  # noqa: ANN003 - Keras'
        super().__init__(rate, mode, **kwargs)
        self._drophead_rate = drophead_rate

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Args: `inputs`, attention weights `[batch, heads, queries, keys]`."""
        weights = super().call(inputs, training=training)
        if not training or not self._drophead_rate:
            return weights
        views, shape = self._mode.views, tf.shape(weights)
        ones = tf.ones([shape[0] // views, shape[1]], weights.dtype)
        # Dropout of ones draws which heads stay; it scales them by 1 / (1 − rate).
        kept = self._random_generator.dropout(ones, self._drophead_rate)
        kept = tf.cast(kept > 0, tf.float32)
        scale = kept * tf.math.divide_no_nan(
            tf.cast(shape[1], tf.float32), tf.reduce_sum(kept, axis=1, keepdims=True)
        )
        scale = tf.cast(tf.tile(scale, [views, 1]), weights.dtype)
        return weights * scale[:, :, tf.newaxis, tf.newaxis]


def replace_dropout(
    bert: tf_keras.Model, rate: float, attention_rate: float, drophead_rate: float
) -> DropoutMode:
    """Gives a built `BertEncoderV2` these dropout layers; returns what they share."""
    mode = DropoutMode()
    bert._embedding_dropout = SharedDropout(rate, mode, name="embedding_dropout")
    for block in bert.transformer_layers:
        block._attention_dropout = SharedDropout(attention_rate, mode)
        block._output_dropout = SharedDropout(rate, mode)
        block._attention_layer._dropout_layer = AttentionDropout(
            attention_rate, drophead_rate, mode
        )
    return mode


def _by_view(inputs: tf.Tensor, views: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`[batch, …]` as `[views, batch / views, …]`, and its own shape."""
    shape = tf.shape(inputs)
    split = tf.concat([[views, shape[0] // views], shape[1:]], axis=0)
    return tf.reshape(inputs, split), shape
