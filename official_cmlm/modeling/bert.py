"""Model Garden's BERT, with sentence vectors as extra inputs at positions of their own.

To save memory, a part of a Transformer block can be computed again in the backward pass, which
needs most results of the forward pass: only the inputs of the part are kept (Chen et al. 2016,
"Training Deep Nets with Sublinear Memory Cost"). Dropout masks are a function of the call's stream,
so both passes draw the same masks. `tf.recompute_grad` cannot be used: when the gradient is due,
the mode of dropout and Keras's `training` are gone, and it does not separate the masks of both
passes for XLA.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras
from official.nlp.modeling import layers, networks

from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.modeling import fused_attention
from official_cmlm.modeling.dropout import current_mode, replace_dropout, zero_after
from official_cmlm.modeling.relative_positions import RelativeAttentionBias

# The scope in which `build_bert` creates its weights.
_SCOPE = "bert/"


def get_activation(name: str):  # noqa: ANN201 - a function or a Keras activation
    """Returns the activation function that `EncoderConfig.hidden_activation` names."""
    return {
        "gelu": compute_in_float32(lambda x: tf_keras.activations.gelu(x, approximate=True)),
        "gelu_exact": compute_in_float32(lambda x: tf_keras.activations.gelu(x, approximate=False)),
        "relu": tf_keras.activations.relu,
    }[name]


class OffsetPositionEmbedding(layers.PositionEmbedding):
    """Model Garden's position table, read from row `offset` on."""

    def __init__(self, offset: int, **kwargs) -> None:  # noqa: ANN003 - PositionEmbedding's own
        super().__init__(**kwargs)
        self._offset = offset

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns position vectors for `inputs` `[batch, seq, hidden]`, of the same shape."""
        length = tf.shape(inputs)[1]
        rows = self._position_embeddings[self._offset : self._offset + length]
        return tf.broadcast_to(rows[tf.newaxis], tf.shape(inputs))


def recompute_outputs(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns `function` with a gradient for which only its inputs are kept.

    While the `current_mode` of dropout has no stream, masks cannot be drawn again, and everything
    is kept as without this function.

    Args:
      function: takes float tensors, returns one. It may read variables. A second call must compute
        the same, so the function passes `training` to its layers by name.
    """

    def call(*inputs: tf.Tensor) -> tf.Tensor:
        mode = current_mode()
        stream = mode.stream
        if stream is None:
            return function(*inputs)

        @tf.custom_gradient
        def once(*inputs: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def gradient(upstream: tf.Tensor, variables: list[tf.Variable] | None = None) -> tuple:
                variables = variables or []
                late = zero_after(upstream)
                again = [x + tf.cast(late, x.dtype) for x in inputs]
                # Masks depend only on the stream: otherwise they could be drawn too early, or kept
                # from the forward pass.
                later = stream.after(late)
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch([*again, *variables])
                    with dataclasses.replace(mode, stream=later).active():
                        outputs = function(*again)
                gradients = tape.gradient(
                    outputs,
                    [*again, *variables],
                    output_gradients=upstream,
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                of_inputs, of_variables = gradients[: len(again)], gradients[len(again) :]
                return (of_inputs, of_variables) if variables else of_inputs

            return function(*inputs), gradient

        return once(*inputs)

    return call


def _recomputes() -> bool:
    stream = current_mode().stream
    return stream is not None and stream.recomputes


def compute_in_float32(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns `function` of a tensor of any precision, computed in float32.

    A compiled training step keeps the tensor itself for the gradient, and nothing in float32.
    """

    def widen(inputs: tf.Tensor) -> tf.Tensor:
        return tf.cast(function(tf.cast(inputs, tf.float32)), inputs.dtype)

    def call(inputs: tf.Tensor) -> tf.Tensor:
        if inputs.dtype == tf.float32:
            return function(inputs)
        return recompute_outputs(widen)(inputs) if _recomputes() else widen(inputs)

    return call


def keep_narrow_inputs(block: tf_keras.layers.Layer) -> None:
    """Lets a built `TransformerEncoderBlock` keep no float32 tensors for the gradient.

    Under half precision Model Garden's block gives its activation and its last norm float32 inputs.
    Both still compute in float32, and compiled training steps keep inputs of 16 bits.
    """
    block._intermediate_activation_layer._autocast = False
    norm = block._output_layer_norm
    normalise = norm.call

    def call(inputs: tf.Tensor) -> tf.Tensor:
        if block.compute_dtype == "float32" or not _recomputes():
            return normalise(inputs)
        return recompute_outputs(normalise)(tf.cast(inputs, block.compute_dtype))

    norm.call = call


def recompute_attention(block: tf_keras.layers.Layer) -> None:
    """Lets a built `TransformerEncoderBlock` compute its attention weights again in training.

    Queries, keys and values are kept; tensors `[batch, heads, queries, keys]` are not
    (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
    "selective activation recomputation").
    """
    attend = block._attention_layer._compute_attention

    def compute(
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        if not training:
            return attend(query, key, value, attention_mask, training)

        def attend_again(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            return attend(query, key, value, attention_mask, training)[0]

        # Nothing reads the attention weights themselves.
        return recompute_outputs(attend_again)(query, key, value), None

    block._attention_layer._compute_attention = compute


def block_at(
    block: layers.TransformerEncoderBlock,
    hidden: tf.Tensor,
    mask: tf.Tensor,
    positions: tf.Tensor | None = None,
    training: bool | None = None,
    recompute: bool = False,
    num_dense: int = 0,
) -> tf.Tensor:
    """Computes a block's outputs at some positions, whose queries attend to the whole sequence.

    Args:
      block: Model Garden's Transformer block.
      hidden: its inputs, float `[batch, seq, hidden]`.
      mask: which inputs can be attended to, `[batch, 1, seq]`, 1 or 0.
      positions: int32 `[batch, n]`. Default: all of them.
      training: whether dropout is on.
      recompute: whether the backward pass computes the block again from `hidden`. Default: its
        intermediate results are kept.
      num_dense: how many of the last inputs follow the padding.

    Returns:
      float `[batch, n, hidden]`.
    """

    def outputs(hidden: tf.Tensor) -> tf.Tensor:
        first = num_dense if fused_attention.is_chosen() else 0
        inputs = [_put_first(hidden, first, 1), _put_first(mask, first, 2)]
        if positions is not None:
            inputs.insert(0, tf.gather(hidden, positions, batch_dims=1))
        elif first:
            inputs.insert(0, hidden)
        return block(inputs, training=training)

    return recompute_outputs(outputs)(hidden) if recompute and training else outputs(hidden)


def _put_first(tensor: tf.Tensor, count: int, axis: int) -> tf.Tensor:
    """Returns a tensor whose last `count` elements of an axis come before the others."""
    if not count:
        return tensor
    others, last = tf.split(tensor, [tensor.shape[axis] - count, count], axis)
    return tf.concat([last, others], axis)


class ConditionedBertEncoder(networks.BertEncoderV2):
    """`BertEncoderV2` whose dense inputs use the last rows of the position table.

    Model Garden appends dense inputs after the padding and continues the position ids there, so the
    loss of an example depends on the length that it is padded to. Here the N dense inputs always
    have position ids P − N … P − 1 of a table of P rows. With P = 256 + 15 these are the position
    ids that they would have after the paper's full sequences of 256 tokens. Dense inputs are as
    wide as the embeddings of tokens.

    A further input, `output_positions`, int32 `[batch, n]`, names the only token positions whose
    outputs are read. The last block is computed for these only: `sequence_output` and the last of
    `encoder_outputs` are `[batch, n, hidden]`, and the pooler reads the first of them. Another one,
    `first_inputs`, float `[batch, hidden]`, takes the place of the first token in the first block's
    input, after norm and dropout.

    Model Garden's pooler is kept, so that public checkpoints can be loaded completely. It is
    trained only if the sentence vector uses it.

    Attributes:
      relative_bias: the bias on attention scores, where the encoder has one, else None.
      recomputes_blocks: whether the backward pass computes each block again.
    """

    def __init__(
        self,
        layer_norm_epsilon: float,
        position_offset: int,
        type_vocab_size: int,
        relative_position_buckets: int = 0,
        **kwargs,  # noqa: ANN003 - BertEncoderV2's own
    ) -> None:
        super().__init__(with_dense_inputs=True, type_vocab_size=max(type_vocab_size, 1), **kwargs)
        # Model Garden's encoder has no arguments for the following settings. They can be set here
        # because nothing is built yet.
        self._embedding_norm_layer.epsilon = layer_norm_epsilon
        for block in self._transformer_layers:
            block._norm_epsilon = layer_norm_epsilon
        self._position_offset = position_offset
        self.recomputes_blocks = False
        self.relative_bias = None
        if relative_position_buckets:
            self.relative_bias = RelativeAttentionBias(
                relative_position_buckets,
                kwargs["num_attention_heads"],
                self.get_config()["initializer"],
            )
        if position_offset:
            self._position_embedding_layer = OffsetPositionEmbedding(
                position_offset,
                max_length=self.get_config()["max_sequence_length"],
                initializer=self.get_config()["initializer"],
                name="position_embedding",
            )
        if self._embedding_projection is not None:
            # Model Garden's layer multiplies by an einsum with an ellipsis, whose gradient takes a
            # hundred times as long on CPUs.
            self._embedding_projection = tf_keras.layers.Dense(
                kwargs["hidden_size"],
                kernel_initializer=self.get_config()["initializer"],
                name="embedding_projection",
            )
        if not type_vocab_size:
            # One row of zeros that is never trained has the effect of no token types.
            self._type_embedding_layer = layers.OnDeviceEmbedding(
                vocab_size=1,
                embedding_width=self.get_config()["embedding_width"],
                initializer="zeros",
                use_one_hot=True,
                trainable=False,
                name="type_embeddings",
            )

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
        """Computes the same as Model Garden's encoder, and supports `output_positions`.

        A further output, `embedding_output`, float `[batch, seq, hidden]`, is the first block's
        input.
        """
        word_ids, mask = inputs["input_word_ids"], inputs["input_mask"]
        dense, num_dense = inputs.get("dense_inputs"), 0
        if dense is not None:
            mask = tf.concat([mask, inputs["dense_mask"]], axis=1)
            num_dense = dense.shape[1]
        embeddings = self._get_embeddings(
            word_ids,
            inputs["input_type_ids"],
            self._embedding_layer(word_ids),
            dense,
            inputs.get("dense_type_ids"),
        )
        hidden = self._embedding_dropout(self._embedding_norm_layer(embeddings))
        if self._embedding_projection is not None:
            hidden = self._embedding_projection(hidden)
        if "first_inputs" in inputs:
            first = tf.cast(inputs["first_inputs"], hidden.dtype)[:, tf.newaxis]
            hidden = tf.concat([first, hidden[:, 1:]], axis=1)
        # The mask is equal for every query, so it is broadcast to the attention weights' shape.
        mask = mask[:, tf.newaxis]
        embedding_output, outputs = hidden, []
        if not self._transformer_layers and "output_positions" in inputs:
            hidden = tf.gather(hidden, inputs["output_positions"], batch_dims=1)
        for block in self._transformer_layers:
            last = block is self._transformer_layers[-1]
            positions = inputs.get("output_positions") if last else None
            with self._use_bias(word_ids, mask, positions):
                hidden = block_at(
                    block, hidden, mask, positions, training, self.recomputes_blocks, num_dense
                )
            outputs.append(hidden)
        return {
            "sequence_output": hidden,
            "pooled_output": self._pooler_layer(hidden[:, 0]),
            "encoder_outputs": outputs,
            "embedding_output": embedding_output,
        }

    def _use_bias(
        self, word_ids: tf.Tensor, mask: tf.Tensor, positions: tf.Tensor | None
    ) -> contextlib.AbstractContextManager:
        """Returns a context in which a block adds the bias from `positions` to its inputs."""
        if self.relative_bias is None:
            return contextlib.nullcontext()
        tokens, elements = tf.shape(word_ids)[1], tf.shape(mask)[2]
        rows = self.get_config()["max_sequence_length"] - self._position_offset
        # Dense inputs have the last positions, as in the position table.
        places = tf.concat([tf.range(tokens), tf.range(rows - (elements - tokens), rows)], axis=0)
        keys = places[tf.newaxis]
        queries = keys if positions is None else positions
        return self.relative_bias.using(self.relative_bias(queries, keys))

    def _get_embeddings(
        self,
        word_ids: tf.Tensor,
        type_ids: tf.Tensor,
        word_embeddings: tf.Tensor | None,
        dense_inputs: tf.Tensor | None,
        dense_type_ids: tf.Tensor | None,
    ) -> tf.Tensor:
        tokens = super()._get_embeddings(word_ids, type_ids, word_embeddings, None, None)
        if dense_inputs is None:
            return tokens
        rows = self.get_config()["max_sequence_length"] - self._position_offset
        table = self._position_embedding_layer(
            tf.zeros([1, rows, dense_inputs.shape[-1]], dense_inputs.dtype)
        )
        count = tf.shape(dense_inputs)[1]
        dense = dense_inputs + table[:, rows - count :] + self._type_embedding_layer(dense_type_ids)
        return tf.concat([tokens, dense], axis=1)


def build_bert(config: EncoderConfig, random_weights: bool = True) -> ConditionedBertEncoder:
    """Builds the encoder and its weights from a checked config; see `SentenceEncoderModel`."""
    bert = ConditionedBertEncoder(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        embedding_width=config.token_width,
        num_layers=config.num_layers,
        num_attention_heads=config.num_attention_heads,
        inner_dim=config.intermediate_size,
        inner_activation=get_activation(config.hidden_activation),
        output_dropout=config.dropout_rate,
        attention_dropout=config.attention_dropout_rate,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        layer_norm_epsilon=config.layer_norm_epsilon,
        position_offset=config.position_offset,
        relative_position_buckets=config.relative_position_buckets,
        initializer=(
            tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)
            if random_weights
            else tf_keras.initializers.Zeros()
        ),
        name="bert",
    )
    bert.pooler_layer.trainable = config.pooled_by.pooler
    ids = tf.zeros([1, 2], tf.int32)
    bert({"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids})
    replace_dropout(bert, config.dropout_rate, config.attention_dropout_rate, config.drophead_rate)
    if bert.relative_bias is not None:
        for block in bert.transformer_layers:
            bert.relative_bias.attach(block)
    for block in bert.transformer_layers:
        keep_narrow_inputs(block)
    bert.recomputes_blocks = config.remat == "blocks"
    if config.remat == "attention":
        for block in bert.transformer_layers:
            recompute_attention(block)
    if bert.relative_bias is None:
        for block in bert.transformer_layers:
            fused_attention.attach(block)
    return bert


def new_dense(
    config: EncoderConfig, size_in: int, size_out: int, name: str, **options: Any
) -> tf_keras.layers.Dense:
    """Builds a dense layer whose initial weights are drawn in the same way as the encoder's."""
    initial = tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)
    layer = tf_keras.layers.Dense(size_out, kernel_initializer=initial, name=name, **options)
    layer.build([None, size_in])
    return layer


def bert_variables(bert: tf_keras.Model) -> dict[str, tf.Variable]:
    """Returns the weights of an encoder's network by Model Garden's names.

    The names have no scope around the encoder, see `sentence_encoder.encoder_variables`.
    """
    return variables_by_name(bert.weights, _SCOPE)


def variables_by_name(variables: list[tf.Variable], scope: str) -> dict[str, tf.Variable]:
    """Returns variables by their names, from which `scope` and the encoder's scope are removed."""
    pattern = re.compile(rf"^(?:.*/)?{scope}|:\d+$|^{_SCOPE}")
    return {pattern.sub("", variable.name): variable for variable in variables}
