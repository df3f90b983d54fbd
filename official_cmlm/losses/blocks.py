"""Computes the loss of a large batch in blocks of anchors, to bound the memory of similarities.

A batch of 16,384 has 268 million similarities, one gigabyte per copy, and a loss with its gradient
needs several copies. Here the similarities of one block of anchors are computed, turned into losses
and gradients, and discarded.
"""

from collections.abc import Callable

import tensorflow as tf

# Similarities per block: 64 MiB of float32.
_BLOCK = 1 << 24

Losses = Callable[..., tuple[tf.Tensor, tf.Tensor]]
"""(anchors [rows, dim], row of the first, *others [all, dim]) -> losses [rows], hits [rows]."""


Reduction = Callable[[Losses, tf.Tensor, tuple[tf.Tensor, ...]], tuple[tf.Tensor, tf.Tensor]]
"""(losses, anchors, others) -> sum of all losses, sum of all hits: float32 scalars."""


def sum_at_once(
    losses: Losses, anchors: tf.Tensor, others: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums as `sum_in_blocks` does, in one block: XLA cannot compile blocks of unequal size."""
    anchors, *others = (tf.cast(x, tf.float32) for x in (anchors, *others))
    values, hits = losses(anchors, tf.constant(0), *others)
    return tf.reduce_sum(values), tf.reduce_sum(hits)


def sum_in_blocks(
    losses: Losses, anchors: tf.Tensor, others: tuple[tf.Tensor, ...], block: int = _BLOCK
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the losses and the hits of all anchors.

    Args:
      losses: function that compares a block of anchors with all others.
      anchors: float `[batch, dim]`.
      others: float `[all, dim]` each.
      block: similarities to compute at a time; a block has at least one anchor.

    Returns:
      float32 scalars. Gradients are computed together with the losses, so second derivatives do not
      exist.
    """

    @tf.custom_gradient
    def sum_all(anchors: tf.Tensor, *others: tf.Tensor) -> tuple:
        count = tf.shape(anchors)[0]
        rows = tf.maximum(1, block // tf.maximum(1, tf.shape(others[0])[0]))

        def one(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, list[tf.Tensor]]:
            part = anchors[start : start + rows]
            with tf.GradientTape() as tape:
                tape.watch([part, *others])
                values, hits = losses(part, start, *others)
                total = tf.reduce_sum(values)
            of_part, *of_others = tape.gradient(
                total, [part, *others], unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return total, tf.reduce_sum(hits), of_part, of_others

        def body(start: tf.Tensor, total, hits, array, sums: list) -> tuple:  # noqa: ANN001
            more, more_hits, of_part, of_others = one(start)
            array = array.write(start // rows, of_part)
            sums = [a + b for a, b in zip(sums, of_others)]
            return start + rows, total + more, hits + more_hits, array, sums

        array = tf.TensorArray(
            anchors.dtype,
            size=(count + rows - 1) // rows,
            infer_shape=False,
            element_shape=[None, anchors.shape[-1]],
        )
        zero = tf.constant(0.0)
        _, total, hits, array, sums = tf.while_loop(
            lambda start, *_: start < count,
            body,
            [tf.constant(0), zero, zero, array, [tf.zeros_like(other) for other in others]],
            # Parallel iterations would hold their blocks in memory together.
            parallel_iterations=1,
        )
        of_anchors = array.concat()

        def gradient(of_total: tf.Tensor, of_hits: tf.Tensor) -> list[tf.Tensor]:
            del of_hits
            return [of_total * of_anchors, *(of_total * each for each in sums)]

        return (total, hits), gradient

    tensors = [tf.cast(x, tf.float32) for x in (anchors, *others)]
    return sum_all(*tensors)
