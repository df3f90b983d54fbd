"""CMLM's projection P: one sentence vector to N vectors."""

import itertools

import tensorflow as tf
import tf_keras


class Projection(tf_keras.layers.Layer):
    """Projects a sentence vector into N spaces, the first of them the identity.

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
          stddev: of the truncated-normal initialisation; BERT's 0.02.
          depth: layers of each network, at least 1; 1 is a linear map.
          width: of the layers between the first and the last, as a multiple of `hidden_size`.
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
