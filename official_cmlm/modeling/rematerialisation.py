"""Rematerialisation: a part of a Transformer block is computed again in the backward pass.

The backward pass needs most results of the forward pass. Only the inputs of a part are kept; the
rest is computed again when its gradient is due (Chen et al. 2016, "Training Deep Nets with
Sublinear Memory Cost"). Dropout masks are a function of the call's stream, so both passes draw the
same. `tf.recompute_grad` cannot be used: when the gradient is due, the mode of dropout and Keras's
`training` are gone, and it does not separate the masks of both passes for XLA.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from official_cmlm.modeling.dropout import DropoutStream, current_mode


def recomputed(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns `function` with a gradient for which only its inputs are kept.

    While the `current_mode` of dropout has no stream, masks cannot be drawn again, and everything
    is kept as without this function.

    Args:
      function: takes float tensors, returns one. It may read variables, and must compute the same
        again: `training` is passed to its layers by name.
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
                late = _zero_after(upstream)
                again = [x + tf.cast(late, x.dtype) for x in inputs]
                # Masks depend on the stream alone: else they could be drawn too early, or kept.
                later = DropoutStream(stream.key + late, stream.first_row + late)
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch([*again, *variables])
                    with dataclasses.replace(mode, stream=later).active():
                        outputs = function(*again)
                found = tape.gradient(
                    outputs,
                    [*again, *variables],
                    output_gradients=upstream,
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                of_inputs, of_variables = found[: len(again)], found[len(again) :]
                return (of_inputs, of_variables) if variables else of_inputs

            return function(*inputs), gradient

        return once(*inputs)

    return call


def _zero_after(tensor: tf.Tensor) -> tf.Tensor:
    """Returns an int64 0 that is known only when `tensor` is.

    A sum with it is computed after `tensor`, and XLA does not find it equal to a value that was
    computed before. For a NaN it is 1, so no compiler may leave out the comparison.
    """
    element = tf.reduce_sum(tf.reshape(tensor, [-1])[:1])
    return tf.cast(tf.not_equal(element, element), tf.int64)


def recompute_attention(block: tf_keras.layers.Layer) -> None:
    """Lets a built `TransformerEncoderBlock` compute its attention weights again in training.

    Queries, keys and values are kept; what has the size `[batch, heads, queries, keys]` is not
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

        def attended(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
            return attend(query, key, value, attention_mask, training)[0]

        # Nobody reads the weights themselves.
        return recomputed(attended)(query, key, value), None

    block._attention_layer._compute_attention = compute
