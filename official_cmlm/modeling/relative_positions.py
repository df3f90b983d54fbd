"""MPNet's learnt bias on attention scores, a function of how far two tokens are apart."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tf_keras

from official_cmlm.configs.encoder import FARTHEST, buckets_of_distances


def relative_bias(table: tf.Tensor, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns the bias between positions.

    Args:
      table: float `[buckets, heads]`.
      queries, keys: positions, int32 `[batch, q]` and `[batch, k]`; the batch may be 1.

    Returns:
      float `[batch, heads, q, k]`.
    """
    distances = keys[:, tf.newaxis, :] - queries[:, :, tf.newaxis]
    places = tf.clip_by_value(distances, -FARTHEST, FARTHEST) + FARTHEST
    # A product selects the rows, so that the table's gradient is dense instead of one row for each
    # pair of tokens.
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
