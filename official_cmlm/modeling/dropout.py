"""The encoder's dropout: of units and of whole attention heads, reproducible, shared by views.

Model Garden's Transformer block is unchanged except for its dropout layers, which have no weights
and are replaced by the layers of this file. The layer after the attention output then has the rate
of the other hidden units, as in BERT's release and in Hugging Face's library; Model Garden gives it
the rate of the attention weights. In a training step every mask is a function of (seed,
step, call, layer, row): it is the same after a restart, for any split of the batch into chunks, and
on any number of replicas.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

# Random numbers that Philox gives for one value of its counter.
_DRAWS = 4
_PHILOX = 1
# The counter's high word is the layer's number + _LAYERS · view.
_LAYERS = 1 << 16
# How many numbers the dropout layers of a Transformer block have; attention's dropout has two.
NUMBERS_A_BLOCK = 4


@dataclasses.dataclass(frozen=True)
class DropoutStream:
    """Determines the dropout masks of one call of an encoder.

    Attributes:
      key: int64 scalar, a hash of the seed, the step and the call.
      first_row: int64 scalar, row in the global batch of the first row of each view.
    """

    key: tf.Tensor
    first_row: tf.Tensor


@dataclasses.dataclass(frozen=True)
class DropoutMode:
    """The way in which one call of an encoder draws its dropout masks.

    Attributes:
      views: number of views of the same examples that are concatenated in the batch.
      shared: all views have the same masks ("controlled dropout", Mirror-BERT §4.4 and Table 8).
      stream: see `DropoutStream`; None uses Keras's generator, which is not reproducible.
    """

    views: int = 1
    shared: bool = False
    stream: DropoutStream | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Makes the mode the `current_mode` within a `with` block.

        Model Garden's blocks, which call the dropout layers, have no argument for it.
        """
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


# The default is one view, whose masks Keras's generator draws.
_DEFAULT = DropoutMode()
_CURRENT = contextvars.ContextVar("dropout_mode", default=_DEFAULT)


def current_mode() -> DropoutMode:
    """Returns the mode of the encoder's call that is being traced in this thread."""
    return _CURRENT.get()


class RepeatableDropout(tf_keras.layers.Dropout):
    """Keras dropout whose masks the `current_mode` decides."""

    def __init__(self, rate: float, number: int, **kwargs) -> None:  # noqa: ANN003 - Keras'
        """Creates the layer; its `number` separates its draws from those of other layers."""
        super().__init__(rate, **kwargs)
        self._number = number

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Drops units of `[batch, …]`."""
        if not training or not self.rate:
            return inputs
        mask = self._draw_mask(tf.shape(inputs), self._number, self.rate)
        scaled = inputs * tf.cast(1.0 / (1.0 - self.rate), inputs.dtype)
        return tf.where(mask, scaled, tf.zeros([], inputs.dtype))

    def _draw_mask(self, shape: tf.Tensor, number: int, rate: float) -> tf.Tensor:
        """Draws a bool mask of a shape `[batch, …]`, false with probability `rate`.

        `number` separates the draws of one call.
        """
        mode = current_mode()
        views, shared = mode.views, mode.shared
        by_view = tf.concat([[views, shape[0] // views], shape[1:]], axis=0)
        drawn = [
            self._draw(by_view[1:], number, rate, view, mode.stream)
            for view in range(1 if shared else views)
        ]
        if len(drawn) == views == 1:
            return tf.reshape(drawn[0], shape)
        return tf.reshape(tf.broadcast_to(tf.stack(drawn), by_view), shape)

    def _draw(
        self, shape: tf.Tensor, number: int, rate: float, view: int, stream: DropoutStream | None
    ) -> tf.Tensor:
        if stream is None:
            return self._random_generator.random_uniform(shape) >= rate
        # A row starts at a new value of the counter, so its mask does not depend on other rows.
        steps = (tf.reduce_prod(shape[1:]) + _DRAWS - 1) // _DRAWS
        counter = stream.first_row * tf.cast(steps, tf.int64)
        # The bits are compared as integers, as XLA converts them to other floats than CPU kernels.
        drawn = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.stack([shape[0], steps * _DRAWS]),
            key=tf.bitcast(stream.key, tf.uint64)[tf.newaxis],
            counter=tf.bitcast(
                tf.stack([counter, tf.constant(number + _LAYERS * view, tf.int64)]), tf.uint64
            ),
            alg=_PHILOX,
            dtype=tf.uint32,
        )
        mask = drawn >= tf.constant(round(rate * 2**32), tf.uint32)
        return tf.reshape(mask[:, : tf.reduce_prod(shape[1:])], shape)


class AttentionDropout(RepeatableDropout):
    """Dropout of attention weights, then of whole heads.

    Drophead (Zhou et al. 2020, "Scheduled DropHead"; Mirror-BERT §4.4): each head of each example
    is dropped with `drophead_rate`, and the remaining heads are multiplied by heads / remaining. If
    all heads are dropped, only the block's residual connection remains.
    """

    def __init__(self, rate: float, drophead_rate: float, number: int, **kwargs) -> None:  # noqa: ANN003 - Keras'
        """Creates the layer, which draws weights by `number` and heads by `number` + 1."""
        super().__init__(rate, number, **kwargs)
        self._drophead_rate = drophead_rate

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Drops attention weights `[batch, heads, queries, keys]`, then whole heads."""
        weights = super().call(inputs, training=training)
        if not training or not self._drophead_rate:
            return weights
        shape = tf.shape(weights)[:2]
        mask = tf.cast(self._draw_mask(shape, self._number + 1, self._drophead_rate), tf.float32)
        scale = mask * tf.math.divide_no_nan(
            tf.cast(shape[1], tf.float32), tf.reduce_sum(mask, axis=1, keepdims=True)
        )
        return weights * tf.cast(scale, weights.dtype)[:, :, tf.newaxis, tf.newaxis]


def replace_dropout(
    bert: tf_keras.Model, rate: float, attention_rate: float, drophead_rate: float
) -> None:
    """Gives a built `BertEncoderV2` the dropout layers of this file."""
    bert._embedding_dropout = RepeatableDropout(rate, 0, name="embedding_dropout")
    for index, block in enumerate(bert.transformer_layers):
        first = 1 + NUMBERS_A_BLOCK * index
        replace_block_dropout(block, rate, attention_rate, drophead_rate, first)


def replace_block_dropout(
    block: tf_keras.layers.Layer,
    rate: float,
    attention_rate: float,
    drophead_rate: float,
    first: int,
) -> None:
    """Gives a built `TransformerEncoderBlock` these dropout layers, numbered from `first` on."""
    block._attention_dropout = RepeatableDropout(rate, first)
    block._output_dropout = RepeatableDropout(rate, first + 1)
    block._attention_layer._dropout_layer = AttentionDropout(
        attention_rate, drophead_rate, first + 2
    )
