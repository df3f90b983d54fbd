"""Rematerialisation: a part of a Transformer block is computed again in the backward pass.

The backward pass needs most of what the forward pass computed. Kept are the inputs of a part alone;
the rest is computed again when its gradient is due (Chen et al. 2016, "Training Deep Nets with
Sublinear Memory Cost"). Dropout masks are a function of the call's stream, so both passes draw the
same. `tf.recompute_grad` does not serve: when the gradient is due, the dropout layers' state and
Keras's `training` are gone, and it does not separate the masks of both passes for XLA.
"""

from collections.abc import Callable

import tensorflow as tf
import tf_keras

from official_cmlm.modeling.dropout import DropoutMode, DropoutStream


def recomputed(function: Callable[..., tf.Tensor], mode: DropoutMode) -> Callable[..., tf.Tensor]:
    """`function`, of which only the inputs are kept for the backward pass.

    Args:
      function: takes float tensors, returns one. It may read variables, and must compute the same
        again: its dropout layers read `mode`, and `training` is passed to its layers by name.
      mode: state of its dropout layers. While it has no stream, masks cannot be drawn again, and
        everything is kept as without this function.
    """

    def call(*inputs: tf.Tensor) -> tf.Tensor:
        views, shared, stream = mode.views, mode.shared, mode.stream
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
                    with mode.set(views, shared, later):
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
    """int64 0 that is known only when `tensor` is.

    What is added to it is computed after `tensor`, and XLA does not find it equal to what was
    computed before. Of a NaN it is 1, as no compiler may leave out the comparison then.
    """
    element = tf.reduce_sum(tf.reshape(tensor, [-1])[:1])
    return tf.cast(tf.not_equal(element, element), tf.int64)


def recompute_attention(block: tf_keras.layers.Layer, mode: DropoutMode) -> None:
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
        return recomputed(attended, mode)(query, key, value), None

    block._attention_layer._compute_attention = compute
