"""The pooling of token outputs to one vector per sentence, and CMLM's projection P to N vectors."""

import itertools

import tensorflow as tf
import tf_keras

from official_cmlm.configs.encoder import Pooling


def pad(
    word_ids: tf.Tensor, mask: tf.Tensor, length: int, padding_id: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pads a batch as padded poolings need it.

    Args:
      word_ids: int32 `[batch, seq]`; the values in the padding do not matter.
      mask: int32 `[batch, seq]`, see `sentence_vector`.
      length: shortest length of the result, in tokens.
      padding_id: id of the padding token.

    Returns:
      Ids and mask, int32 `[batch, max(seq, length)]`; all padding of the ids is `padding_id`.
    """
    more = tf.maximum(length - tf.shape(word_ids)[1], 0)
    mask = tf.pad(mask, [[0, 0], [0, more]])
    word_ids = tf.pad(word_ids, [[0, 0], [0, more]])
    return tf.where(mask > 0, word_ids, padding_id), mask


def with_padding(mask: tf.Tensor, length: int) -> tf.Tensor:
    """Marks the tokens that a padded pooling reads: real ones, and padding up to `length`.

    Args:
      mask: int32 `[batch, seq]`, see `sentence_vector`.
      length: see `EncoderConfig.padded_length`.

    Returns:
      int32 `[batch, seq]`, 1 for tokens that are read; a row without a real token is all 0.
    """
    padding = tf.range(tf.shape(mask)[1]) < length
    used = ((mask > 0) | padding) & tf.reduce_any(mask > 0, axis=1, keepdims=True)
    return tf.cast(used, tf.int32)


def sentence_vector(
    layers: list[tf.Tensor], pooled_cls: tf.Tensor, mask: tf.Tensor, pooling: Pooling
) -> tf.Tensor:
    """Computes the sentence vector that `EncoderConfig.pooling` names.

    Args:
      layers: outputs of the embedding layer and of each block, float `[batch, seq, hidden]`.
      pooled_cls: BERT's pooler on the first token, float `[batch, hidden]`.
      mask: `[batch, seq]`, 1 for real tokens (special ones included), 0 for padding. For a weighted
        mean it is the result of `weigh_mask`, for a padded pooling that of `with_padding`.
      pooling: a value of `configs.encoder.POOLINGS` (CMLM §2, footnote 1, and Table 9).

    Returns:
      float32 `[batch, hidden]`; a mean or maximum is zeros where a row has no real token.
    """
    if pooling.pooler:
        return tf.cast(pooled_cls, tf.float32)
    outputs = tf.cast(layers[-1], tf.float32)
    if pooling.averaged_with is not None:
        outputs = (tf.cast(layers[pooling.averaged_with], tf.float32) + outputs) / 2
    if pooling.reduction == "first":
        return outputs[:, 0]
    real = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    if pooling.reduction == "max":
        largest = tf.reduce_max(tf.where(real > 0, outputs, outputs.dtype.min), axis=1)
        return tf.where(tf.reduce_any(real > 0, axis=1), largest, 0.0)
    return tf.math.divide_no_nan(tf.reduce_sum(outputs * real, axis=1), tf.reduce_sum(real, axis=1))


def unit_length(vectors: tf.Tensor) -> tf.Tensor:
    """Scales the rows of a float `[batch, size]` to length 1; a zero row stays zero."""
    return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=-1, keepdims=True))


def weigh_mask(table: tf.Tensor, word_ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns how much each token counts in a weighted mean: `exp(table[id])`, 0 in the padding.

    Args:
      table: float32 `[vocab, 1]`.
      word_ids, mask: int32 `[batch, seq]`, see `sentence_vector`.

    Returns:
      float32 `[batch, seq]`.
    """
    weights = tf.gather(tf.exp(tf.squeeze(table, -1)), word_ids)
    return weights * tf.cast(mask, tf.float32)


class TokenWeights(tf_keras.layers.Layer):
    """A learned weight for each entry of the vocabulary; see `weigh_mask`."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(name="token_weights", dtype=tf.float32)
        self.embeddings = self.add_weight("embeddings", [vocab_size, 1], initializer="zeros")

    def call(self, word_ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the weighted mask, float32 `[batch, seq]`, of int32 ids and mask."""
        return weigh_mask(self.embeddings, word_ids, mask)


class Projection(tf_keras.layers.Layer):
    """A projection of a sentence vector into N spaces, of which the first is the identity.

    CMLM §2 and appendix C: v_p = P(v), with N − 1 three-layer networks
    FC(h, 2h, ReLU) → FC(2h, 2h, ReLU) → FC(2h, h, none) beside the identity; the appendix also
    tried other depths and widths. The N − 1 networks are kept as one stack of kernels and computed
    together.
    """

    def __init__(
        self,
        num_projections: int,
        hidden_size: int,
        stddev: float = 0.02,
        depth: int = 3,
        width: float = 2.0,
    ) -> None:
        """Creates the weights.

        Args:
          num_projections: N, at least 1; 1 is the identity alone (Table 7, "N = 1").
          hidden_size: h, the width of the sentence vector.
          stddev: standard deviation of the truncated-normal initialisation; BERT has 0.02.
          depth: layers of each network, at least 1; 1 is a linear map.
          width: width of the vectors between the layers, as a multiple of `hidden_size`.
        """
        super().__init__(name="projection")
        if num_projections < 1:
            raise ValueError(f"num_projections must be at least 1, got {num_projections}")
        self.num_projections = num_projections
        between = max(1, round(width * hidden_size))
        sizes = [hidden_size, *[between] * (depth - 1), hidden_size]
        self.kernels, self.biases = [], []
        for layer, (size_in, size_out) in (
            enumerate(itertools.pairwise(sizes)) if num_projections > 1 else ()
        ):
            self.kernels.append(
                self.add_weight(
                    f"kernel_{layer}",
                    [num_projections - 1, size_in, size_out],
                    initializer=tf_keras.initializers.TruncatedNormal(stddev=stddev),
                )
            )
            self.biases.append(
                self.add_weight(
                    f"bias_{layer}", [num_projections - 1, size_out], initializer="zeros"
                )
            )

    def call(self, vectors: tf.Tensor) -> tf.Tensor:
        """Maps float `[batch, hidden]` to `[batch, num_projections, hidden]`."""
        vectors = tf.cast(vectors, self.compute_dtype)
        identity = vectors[:, tf.newaxis]
        if self.num_projections == 1:
            return identity
        hidden = tf.einsum("bi,nio->bno", vectors, self.kernels[0]) + self.biases[0]
        for kernel, bias in zip(self.kernels[1:], self.biases[1:]):
            hidden = tf.einsum("bni,nio->bno", tf.nn.relu(hidden), kernel) + bias
        return tf.concat([identity, hidden], axis=1)
