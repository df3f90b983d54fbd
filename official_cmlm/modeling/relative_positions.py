"""MPNet's learnt bias on attention scores, a function of how far two tokens are apart."""

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tf_keras

# Distances from here on are one bucket (Raffel et al. 2020, "T5", §2.1; MPNet's code).
_FARTHEST = 128


def buckets_of_distances(buckets: int) -> np.ndarray:
    """Returns the bucket of each distance from −128 to 128: int32 `[257]`.

    Half of the buckets are for keys after the query. Half of each half is for single distances, and
    the others grow with the logarithm. NumPy computes them: compilers round logarithms otherwise.
    """
    half = buckets // 2
    exact = half // 2
    distances = np.arange(-_FARTHEST, _FARTHEST + 1)
    near = np.abs(distances)
    grown = np.log(np.maximum(near, 1) / exact) / math.log(_FARTHEST / exact) * (half - exact)
    # A rounding error below a whole number would be another bucket.
    far = np.minimum(exact + (grown + 1e-6).astype(np.int64), half - 1)
    return (np.where(near < exact, near, far) + half * (distances > 0)).astype(np.int32)


def relative_bias(table: tf.Tensor, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns the bias between positions.

    Args:
      table: float `[buckets, heads]`.
      queries, keys: positions, int32 `[batch, q]` and `[batch, k]`; the batch may be 1.

    Returns:
      float `[batch, heads, q, k]`.
    """
    distances = keys[:, tf.newaxis, :] - queries[:, :, tf.newaxis]
    places = tf.clip_by_value(distances, -_FARTHEST, _FARTHEST) + _FARTHEST
    # A product, so that the table's gradient is dense, and not one row for each pair of tokens.
    chosen = tf.one_hot(buckets_of_distances(table.shape[0]), table.shape[0], dtype=table.dtype)
    return tf.transpose(tf.gather(tf.matmul(chosen, table), places), [0, 3, 1, 2])


class RelativeAttentionBias(tf_keras.layers.Layer):
    """The table, and the bias that blocks add while they are called inside `using`."""

    def __init__(self, buckets: int, heads: int, initializer: object) -> None:
        super().__init__(name="relative_attention_bias")
        self.table = self.add_weight(
            "relative_attention_bias/embeddings",
            [buckets, heads],
            initializer=initializer,
            dtype=tf.float32,
        )
        self._current: tf.Tensor | None = None

    def call(self, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Returns the `relative_bias` of the table."""
        return relative_bias(tf.convert_to_tensor(self.table), queries, keys)

    @contextlib.contextmanager
    def using(self, bias: tf.Tensor) -> Iterator[None]:
        """Makes the blocks that are called within a `with` block add this bias."""
        self._current = bias
        try:
            yield
        finally:
            self._current = None

    def attach(self, block: tf_keras.layers.Layer) -> None:
        """Lets a built `TransformerEncoderBlock` add the bias to its attention scores."""
        attention = block._attention_layer
        softmax = attention._masked_softmax

        def masked_softmax(scores: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
            if self._current is not None:
                scores += tf.cast(self._current, scores.dtype)
            return softmax(scores, mask)

        attention._masked_softmax = masked_softmax
