"""The encoder's forward pass for encoding on CPUs: equal outputs from fewer, larger operations.

`SentenceEncoderModel` is written for training: Einsum layers, dropout, the outputs of every layer.
Here the same weights are used in 2-D matrix products, which TensorFlow's CPU kernels fuse with bias
and activation, and in layer normalisations that are a single kernel. Only the embedding is
returned. Tests compare the two.
"""

import numpy as np
import tensorflow as tf

from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.modeling.pooling import (
    Projection,
    pad,
    sentence_vector,
    unit_length,
    weigh_mask,
    with_padding,
)
from official_cmlm.modeling.relative_positions import relative_bias
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel, encoder_variables

PRECISIONS = ("float32", "bfloat16")
# This is added to the scores of padding; it is far below any score, yet finite.
_MASKED = -1e9

# The products of attention, in their order in a joined kernel.
_ATTENTION_INPUTS = ("query", "key", "value")

# Name -> weight: the encoder's variable, or a tensor of its values, such as a graph's constant.
Weights = dict[str, tf.Tensor | tf.Variable]


def inference_weights(model: SentenceEncoderModel, precision: str) -> Weights:
    """Returns the weights that `embed` reads.

    Args:
      model: the encoder.
      precision: `float32`, the model's own variables; or `bfloat16`, copies of the kernels with
        8 bits of mantissa, for processors that multiply those faster.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
    weights: Weights = dict(encoder_variables(model))
    if precision == "bfloat16":
        for name, variable in weights.items():
            if name.startswith("transformer/") and "norm" not in name:
                weights[name] = tf.cast(variable, tf.bfloat16)
    return weights


def join_kernels(arrays: dict[str, np.ndarray], config: EncoderConfig) -> dict[str, np.ndarray]:
    """Joins constant weights into one product for the query, key and value of a layer.

    The scale of the scores is multiplied into the query's part. A few larger operations take less
    time than many small ones where a request is one short text.

    Args:
      arrays: weights by name. A layer stays as it is if one of its weights is missing, and so does
        the last layer if the pooling reads only the first token, because only that token has a
        query there.
      config: the encoder's config.

    Returns:
      The weights, with `…/self_attention/joined/kernel` `[hidden, 3 · hidden]` and its bias.
    """
    result, scale = dict(arrays), _scale(config)
    for index in range(config.num_layers - config.pooled_by.first_token):
        scope = f"transformer/layer_{index}/self_attention"
        names = [
            f"{scope}/{part}/{what}" for what in ("kernel", "bias") for part in _ATTENTION_INPUTS
        ]
        if not arrays.keys() >= set(names):
            continue
        parts = [result.pop(name) for name in names]
        for what, (query, key, value), rows in (
            ("kernel", parts[:3], config.hidden_size),
            ("bias", parts[3:], 1),
        ):
            flat = [part.reshape(rows, -1) for part in (query * scale, key, value)]
            result[f"{scope}/joined/{what}"] = np.concatenate(flat, axis=1)
    return result


def _scale(config: EncoderConfig) -> np.float32:
    """Returns the factor of attention scores."""
    return np.float32((config.hidden_size // config.num_attention_heads) ** -0.5)


def embed(
    weights: Weights,
    config: EncoderConfig,
    projection: Projection | None,
    word_ids: tf.Tensor,
    lengths: tf.Tensor,
) -> tf.Tensor:
    """Embeds a padded batch; the embeddings are those that `SentenceEncoderModel` calls `default`.

    Args:
      weights: see `inference_weights` and `join_kernels`.
      config: the encoder's config.
      projection: the encoder's projection, if it has one.
      word_ids: int32 `[batch, seq]`, special tokens included.
      lengths: int32 `[batch]`, real tokens of each row; the rest is padding.

    Returns:
      float32 `[batch, embedding_size]`.
    """
    mask = tf.sequence_mask(lengths, tf.shape(word_ids)[1], tf.int32)
    if config.padded_length:
        word_ids, mask = pad(word_ids, mask, config.padded_length, config.padding_id)
    # [batch, 1, 1, seq]
    bias = (1.0 - tf.cast(mask, tf.float32))[:, tf.newaxis, tf.newaxis, :] * _MASKED
    if config.relative_position_buckets:
        positions = tf.range(tf.shape(word_ids)[1])[tf.newaxis]
        table = tf.convert_to_tensor(weights["relative_attention_bias/embeddings"])
        # [batch, heads, seq, seq]
        bias += relative_bias(table, positions, positions)
    hidden = _embeddings(weights, config, word_ids)
    order = _HeadOrder(config.num_attention_heads, *tf.unstack(tf.shape(word_ids)))
    batch, width = tf.shape(word_ids)[0], config.hidden_size
    layers = [tf.reshape(hidden, [batch, -1, width])]
    for index in range(config.num_layers):
        # If the pooling reads only the first token, the last layer computes no other outputs.
        first_only = config.pooled_by.first_token and index == config.num_layers - 1
        layer = _Layer(weights, config, f"transformer/layer_{index}", order)
        hidden = layer(hidden, bias, batch, first_only)
        layers.append(tf.reshape(hidden, [batch, -1, width]))
    pooled = tf.matmul(layers[-1][:, 0], weights["pooler_transform/kernel"])
    pooled = tf.tanh(pooled + weights["pooler_transform/bias"])
    pooled_mask = with_padding(mask, config.padded_length) if config.padded_length else mask
    if config.pooled_by.weighted:
        table = tf.convert_to_tensor(weights["token_weights/embeddings"])
        pooled_mask = weigh_mask(table, word_ids, mask)
    embedding = sentence_vector(layers, pooled, pooled_mask, config.pooled_by)
    if projection is not None:
        embedding = tf.reduce_mean(projection(embedding), axis=1)
    if config.dense_size:
        embedding = tf.matmul(embedding, weights["dense/kernel"]) + weights["dense/bias"]
        if config.dense_activation == "tanh":
            embedding = tf.tanh(embedding)
    if config.normalize:
        embedding = unit_length(embedding)
    return embedding


def _embeddings(weights: Weights, config: EncoderConfig, word_ids: tf.Tensor) -> tf.Tensor:
    """Embeds tokens: float32 `[batch · seq, hidden]`."""
    start, length = config.position_offset, tf.shape(word_ids)[1]
    positions = weights["position_embedding/embeddings"][start : start + length]
    types = weights["type_embeddings/embeddings"][0]
    hidden = tf.gather(weights["word_embeddings/embeddings"], word_ids) + (positions + types)
    flat = tf.reshape(hidden, [-1, config.token_width])
    flat = _layer_norm(weights, config, "embeddings/layer_norm", flat)
    if not config.embedding_width:
        return flat
    product = tf.matmul(flat, weights["embedding_projection/kernel"])
    return tf.nn.bias_add(product, weights["embedding_projection/bias"])


class _HeadOrder:
    """Transpositions of heads, done by gathers of rows; all layers share the order of the rows.

    oneDNN's transposition takes some 80 µs of preparation, longer than the copy for short texts.
    """

    def __init__(self, heads: int, batch: tf.Tensor, length: tf.Tensor) -> None:
        self._shape = [batch, heads, length, -1]
        count = batch * length * heads
        apart = tf.reshape(tf.range(3 * count), [batch, length, 3, heads])
        self._apart = tf.reshape(tf.transpose(apart, [2, 0, 3, 1]), [-1])
        together = tf.reshape(tf.range(count), [batch, heads, length])
        self._together = tf.reshape(tf.transpose(together, [0, 2, 1]), [-1])

    def split(self, joined: tf.Tensor, size: int) -> list[tf.Tensor]:
        """Splits `[batch · seq, 3 · hidden]` into three `[batch, heads, seq, size]`."""
        rows = tf.gather(tf.reshape(joined, [-1, size]), self._apart)
        return [tf.reshape(part, self._shape) for part in tf.split(rows, 3)]

    def join(self, context: tf.Tensor, size: int) -> tf.Tensor:
        """Joins `[batch, heads, seq, size]` to `[batch · seq, hidden]`."""
        rows = tf.gather(tf.reshape(context, [-1, size]), self._together)
        return tf.reshape(rows, [-1, self._shape[1] * size])


class _Layer:
    """One Transformer block on `[batch · seq, hidden]`."""

    def __init__(
        self, weights: Weights, config: EncoderConfig, scope: str, order: _HeadOrder
    ) -> None:
        self._weights, self._config, self._scope = weights, config, scope
        self._order = order
        self._dtype = weights[f"{scope}/intermediate/kernel"].dtype

    def __call__(
        self, hidden: tf.Tensor, bias: tf.Tensor, batch: tf.Tensor, first_only: bool
    ) -> tf.Tensor:
        config = self._config
        queried = hidden
        if first_only:
            queried = tf.reshape(hidden, [batch, -1, config.hidden_size])[:, 0]
            bias = bias[:, :, :1]
        size = config.hidden_size // config.num_attention_heads
        is_joined = f"{self._scope}/self_attention/joined/kernel" in self._weights
        if is_joined:
            joined = self._dense(hidden, "self_attention/joined")
            query, key, value = self._order.split(joined, size)
        else:
            query = self._heads(self._dense(queried, "self_attention/query"), batch)
            query *= tf.cast(_scale(config), query.dtype)
            key = self._heads(self._dense(hidden, "self_attention/key"), batch)
            value = self._heads(self._dense(hidden, "self_attention/value"), batch)
        scores = tf.matmul(query, key, transpose_b=True)
        attention = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
        context = tf.matmul(tf.cast(attention, value.dtype), value)
        if is_joined:
            context = self._order.join(context, size)
        else:
            context = tf.transpose(context, [0, 2, 1, 3])
            context = tf.reshape(context, [-1, config.hidden_size])
        attended = self._dense(context, "self_attention/attention_output")
        hidden = self._norm(queried + tf.cast(attended, tf.float32), "self_attention_layer_norm")
        inner = self._activation(self._dense(hidden, "intermediate"))
        outer = self._dense(inner, "output")
        return self._norm(hidden + tf.cast(outer, tf.float32), "output_layer_norm")

    def _dense(self, inputs: tf.Tensor, name: str) -> tf.Tensor:
        """Computes the layer as one 2-D product, so that its bias is added in the same pass."""
        kernel = tf.convert_to_tensor(self._weights[f"{self._scope}/{name}/kernel"])
        kernel = tf.reshape(kernel, [inputs.shape[-1], -1])
        bias = tf.reshape(self._weights[f"{self._scope}/{name}/bias"], [-1])
        return tf.nn.bias_add(tf.matmul(tf.cast(inputs, self._dtype), kernel), bias)

    def _heads(self, flat: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
        """Reshapes `[batch · seq, hidden]` to `[batch, heads, seq, hidden / heads]`."""
        heads = self._config.num_attention_heads
        split = [batch, -1, heads, self._config.hidden_size // heads]
        return tf.transpose(tf.reshape(flat, split), [0, 2, 1, 3])

    def _activation(self, inputs: tf.Tensor) -> tf.Tensor:
        name = self._config.hidden_activation
        if name == "relu":
            return tf.nn.relu(inputs)
        return tf.nn.gelu(inputs, approximate=name == "gelu")

    def _norm(self, inputs: tf.Tensor, name: str) -> tf.Tensor:
        return _layer_norm(self._weights, self._config, f"{self._scope}/{name}", inputs)


def _layer_norm(weights: Weights, config: EncoderConfig, name: str, inputs: tf.Tensor) -> tf.Tensor:
    """Normalises `[rows, width]` by a batch normalisation whose channels are the rows.

    Keras uses the same formulation for larger epsilons; TensorFlow's CPU kernels compute this
    pattern in one pass. With constants, or where graphs are not optimised, they do not: a batch
    normalisation remains, which oneDNN before TensorFlow 2.21 cannot compute in two threads at once
    (it ends the process: https://github.com/tensorflow/tensorflow/pull/99852). Then mean and
    variance are computed explicitly.
    """
    gamma, beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]
    as_written = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer")
    if as_written or not isinstance(gamma, tf.Variable):
        mean = tf.reduce_mean(inputs, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(inputs, mean), axis=-1, keepdims=True)
        return tf.nn.batch_normalization(
            inputs, mean, variance, beta, gamma, config.layer_norm_epsilon
        )
    rows, width = tf.shape(inputs)[0], gamma.shape[0]
    normal, *_ = tf.compat.v1.nn.fused_batch_norm(
        tf.reshape(inputs, [1, rows, width, 1]),
        scale=tf.ones([rows]),
        offset=tf.zeros([rows]),
        epsilon=config.layer_norm_epsilon,
        data_format="NCHW",
    )
    normal = tf.reshape(normal, [-1, width])
    return normal * gamma + beta
