"""A head with batch normalisation between the sentence vector and a contrastive loss.

Only training needs it; its weights are saved in checkpoints and never exported.
"""

import tensorflow as tf
import tf_keras

from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.losses.replicas import gather
from official_cmlm.modeling.bert import new_dense

# PyTorch's defaults for `BatchNorm1d`, with which DiffCSE was trained: the share of the batch in a
# moving average, and the number that is added to a variance.
_SHARE, _EPSILON = 0.1, 1e-5


class BatchNormalization(tf_keras.layers.Layer):
    """Batch normalisation (Ioffe and Szegedy 2015) over the rows of the global batch.

    In training, a component is normalised by its mean and variance over the rows of all replicas,
    so that the result does not depend on their number. In validation it is normalised by moving
    averages of the training's means and unbiased variances.
    """

    def __init__(self, size: int, scales: bool, name: str) -> None:
        """Creates the weights; with `scales`, factors and offsets of the components are learned."""
        # Sums over a batch are too coarse in half precision.
        super().__init__(name=name, dtype=tf.float32)
        self.gamma = self.beta = None
        if scales:
            self.gamma = self.add_weight("gamma", [size], initializer="ones")
            self.beta = self.add_weight("beta", [size], initializer="zeros")
        # Each replica has its own copies, which are equal.
        state = {
            "shape": [size],
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self.moving_mean = self.add_weight("moving_mean", initializer="zeros", **state)
        self.moving_variance = self.add_weight("moving_variance", initializer="ones", **state)

    def call(self, rows: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Normalises `[rows, size]`, float32; in training, the moving averages take a step."""
        mean, variance = self.moving_mean, self.moving_variance
        if training:
            everywhere, _ = gather(rows)
            mean, variance = tf.nn.moments(everywhere, axes=[0])
            count = tf.cast(tf.shape(everywhere)[0], tf.float32)
            unbiased = variance * count / (count - 1)
            for moving, now in ((self.moving_mean, mean), (self.moving_variance, unbiased)):
                moving.assign((1 - _SHARE) * moving + _SHARE * now)
        return tf.nn.batch_normalization(rows, mean, variance, self.beta, self.gamma, _EPSILON)


class BatchNormMlp(tf_keras.layers.Layer):
    """DiffCSE's head: dense to twice the width, normalised, ReLU, dense back, normalised.

    The dense layers have no biases, and the second normalisation learns nothing.
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Creates the weights for the vectors of an encoder with this config."""
        super().__init__(name="projection_head")
        size = config.embedding_size
        self.widen = new_dense(config, size, 2 * size, "widen", use_bias=False)
        self.hidden_norm = BatchNormalization(2 * size, True, "hidden_norm")
        self.narrow = new_dense(config, 2 * size, size, "narrow", use_bias=False)
        self.norm = BatchNormalization(size, False, "norm")

    def call(self, vectors: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Maps `[rows, size]` to float32 of the same shape."""
        hidden = tf.nn.relu(self.hidden_norm(self.widen(vectors), training=training))
        return self.norm(self.narrow(hidden), training=training)
