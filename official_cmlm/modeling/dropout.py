"""The encoder's dropout: of units and of whole attention heads, reproducible, shared by views.

Model Garden's Transformer block is unchanged except for its dropout layers, which have no weights
and are replaced by the layers of this file. The layer after the attention output then has the rate
of the other hidden units, as in BERT's release and in Hugging Face's library; Model Garden gives it
the rate of the attention weights. In a training step every mask is a function of (seed,
step, call, layer, row): it is the same after a restart, for any split of the batch into chunks, and
on any number of replicas. A unit has 8 random bits, so its rate is a multiple of 1/256; it has 16
where that is not within 2 % of the rate.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator

import tensorflow as tf
import tf_keras

# Random numbers of 32 bits that Philox gives for one value of its counter.
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
      recomputes: whether the backward pass computes masks and activations again, which are cheap in
        a compiled step, in place of reading those of the forward pass from memory.
    """

    key: tf.Tensor
    first_row: tf.Tensor
    recomputes: bool = False

    def after(self, late: tf.Tensor) -> "DropoutStream":
        """Returns the same stream, whose masks cannot be drawn before `late` is known.

        They are not made one with those of the forward pass either. `late`: see `zero_after`.
        """
        return dataclasses.replace(self, key=self.key + late, first_row=self.first_row + late)


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


def zero_after(tensor: tf.Tensor) -> tf.Tensor:
    """Returns an int64 0 that is known only when `tensor` is.

    A sum with it is computed after `tensor`, and XLA does not recognise the sum as a value that was
    computed before. For a NaN the result is 1, so no compiler may leave out the comparison.
    """
    element = tf.reduce_sum(tf.reshape(tensor, [-1])[:1])
    return tf.cast(tf.not_equal(element, element), tf.int64)


def threshold_of(rate: float) -> tuple[int, int]:
    """Returns (number of random bits of a unit, threshold below which they drop it)."""
    bits = 8 if abs(round(rate * 2**8) - rate * 2**8) <= 0.02 * rate * 2**8 else 16
    return bits, min(round(rate * 2**bits), 2**bits - 1)


class RepeatableDropout(tf_keras.layers.Dropout):
    """Keras dropout whose masks the `current_mode` decides."""

    def __init__(self, rate: float, number: int, **kwargs) -> None:  # noqa: ANN003 - Keras'
        """Creates the layer; its `number` separates its draws from those of other layers."""
        super().__init__(rate, **kwargs)
        self._number = number

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Drops units of `[batch, …]`."""
        mode = current_mode()
        if not training or not self.rate:
            return inputs
        if mode.stream is None or not mode.stream.recomputes:
            return self._drop(inputs)

        @tf.custom_gradient
        def drop(inputs: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                later = mode.stream.after(zero_after(upstream))
                with dataclasses.replace(mode, stream=later).active():
                    # The function is linear: its gradient is the same function of `upstream`.
                    return self._drop(upstream)

            return self._drop(inputs), gradient

        return drop(inputs)

    def _drop(self, inputs: tf.Tensor) -> tf.Tensor:
        bits, threshold = threshold_of(self.rate)
        mask = self._draw_mask(tf.shape(inputs), self._number, self.rate)
        scaled = inputs * tf.cast(1.0 / (1.0 - threshold / 2**bits), inputs.dtype)
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
        bits, threshold = threshold_of(rate)
        if stream is None:
            return self._random_generator.random_uniform(shape) >= threshold / 2**bits
        # A row starts at a new value of the counter, so its mask does not depend on other rows.
        units, parts = tf.reduce_prod(shape[1:]), 32 // bits
        steps = (units + _DRAWS * parts - 1) // (_DRAWS * parts)
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
        # The highest bits decide; shifts bring each part of a number there.
        shifts = tf.constant([[bits * part] for part in range(parts)], tf.uint32)
        shifted = tf.bitwise.left_shift(drawn[:, tf.newaxis], shifts)
        mask = shifted >= tf.constant(threshold << (32 - bits), tf.uint32)
        return tf.reshape(tf.reshape(mask, [shape[0], -1])[:, :units], shape)


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

    @property
    def drops(self) -> bool:
        """Whether it drops anything in training."""
        return bool(self.rate or self._drophead_rate)

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
