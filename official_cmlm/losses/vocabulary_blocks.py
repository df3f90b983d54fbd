"""Cross-entropy of predicted tokens in blocks of the vocabulary, to bound the memory of logits.

At 2,560 predictions, the logits of a vocabulary of 501,153 entries are 4.8 GiB in float32, and a
loss with its gradient needs several copies. Here the logits of one block of entries are computed,
added to running sums, and discarded; the backward pass computes them again.
"""

from collections.abc import Callable

import tensorflow as tf

Block = Callable[[tf.Tensor, int], tf.Tensor]
"""(first entry of a block, its entries) -> float32 logits `[k, entries]`."""


def cross_entropy_in_blocks(
    hidden: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    ids: tf.Tensor,
    weights: tf.Tensor,
    block_size: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes `masked_cross_entropy` of the logits `hidden @ tableᵀ + bias`, never made whole.

    Products have the precision of their factors, as with whole logits; softmax, sums over the
    blocks and the bias's gradient are float32.

    Args:
      hidden: float `[k, hidden]`.
      table: float `[vocab, hidden]`, of the same type; `vocab` is static.
      bias: float `[vocab]`.
      ids: int32 `[k]`, the original tokens.
      weights: float32 `[k]`, 0 for unused slots.
      block_size: entries of the vocabulary at a time; the last block has the rest.

    Returns:
      See `masked_cross_entropy`. Second derivatives do not exist.
    """

    @tf.custom_gradient
    def losses_of(hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tuple:
        logits = _logits(hidden, table, bias)
        scale, own, likely = _statistics(logits, hidden, table, ids, block_size)

        def gradient(of_losses: tf.Tensor, of_likely: tf.Tensor) -> tuple[tf.Tensor, ...]:
            del of_likely
            # The derivative of scale − own logit by each logit is softmax − (1 at the original).
            return _gradients(logits, hidden, table, bias, ids, scale, of_losses, block_size)

        return (scale - own, likely), gradient

    losses, likely = losses_of(hidden, table, bias)
    correct = tf.cast(tf.equal(likely, ids), tf.float32)
    return (
        tf.reduce_sum(losses * weights),
        tf.reduce_sum(correct * weights),
        tf.reduce_sum(weights),
    )


def most_likely_in_blocks(
    hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor, block_size: int
) -> tf.Tensor:
    """Returns the entry of the largest logit, the first of equal ones: int32 `[k]`, no gradient.

    Args: see `cross_entropy_in_blocks`.
    """
    hidden, table, bias = (tf.stop_gradient(x) for x in (hidden, table, bias))
    ids = tf.zeros(tf.shape(hidden)[:1], tf.int32)
    return _statistics(_logits(hidden, table, bias), hidden, table, ids, block_size)[2]


def _logits(hidden: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> Block:
    """Returns a function that computes the logits of a block."""

    def block(first: tf.Tensor, size: int) -> tf.Tensor:
        product = tf.matmul(hidden, _rows(table, first, size), transpose_b=True)
        return tf.cast(tf.nn.bias_add(product, tf.slice(bias, [first], [size])), tf.float32)

    return block


def _rows(table: tf.Tensor, first: tf.Tensor, size: int) -> tf.Tensor:
    return tf.slice(table, [first, 0], [size, table.shape[1]])


def _over_blocks(entries: int, block_size: int, body: Callable[..., list], state: list) -> list:
    """Calls `body(index, first entry, entries, *state) -> state` for each block, in turn."""
    block_size = min(block_size, entries)
    whole, rest = divmod(entries, block_size)
    # Parallel iterations would hold their blocks in memory together.
    _, *state = tf.while_loop(
        lambda index, *_: index < whole,
        lambda index, *state: (index + 1, *body(index, index * block_size, block_size, *state)),
        [tf.constant(0), *state],
        parallel_iterations=1,
    )
    if rest:
        # The last block has another size, static as XLA requires; the table is not padded.
        state = body(tf.constant(whole), tf.constant(whole * block_size), rest, *state)
    return state


def _statistics(
    logits: Block, hidden: tf.Tensor, table: tf.Tensor, ids: tf.Tensor, block_size: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns each row's log Σ exp of logits, logit of `ids` and entry of the largest: `[k]`."""

    def body(index, first, size, top, total, own, likely) -> list:  # noqa: ANN001
        del index
        block = logits(first, size)
        best = tf.reduce_max(block, axis=1)
        # Only a larger logit counts: of equal logits the first is taken, as in `tf.argmax`.
        likely = tf.where(
            best > top, first + tf.argmax(block, axis=1, output_type=tf.int32), likely
        )
        new = tf.maximum(top, best)
        total = total * tf.exp(top - new) + tf.reduce_sum(tf.exp(block - new[:, None]), axis=1)
        inside = tf.logical_and(ids >= first, ids < first + size)
        places = tf.clip_by_value(ids - first, 0, size - 1)
        own = tf.where(inside, tf.gather(block, places, batch_dims=1), own)
        return [new, total, own, likely]

    zeros = tf.zeros(tf.shape(hidden)[:1])
    lowest = tf.fill(tf.shape(zeros), tf.float32.min)
    state = [lowest, zeros, zeros, tf.zeros_like(ids)]
    top, total, own, likely = _over_blocks(table.shape[0], block_size, body, state)
    return top + tf.math.log(total), own, likely


def _gradients(
    logits: Block,
    hidden: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    ids: tf.Tensor,
    scale: tf.Tensor,
    of_losses: tf.Tensor,
    block_size: int,
) -> tuple[tf.Tensor, ...]:
    """Returns the gradients of Σ `of_losses` · losses by hidden states, table and bias."""
    entries, width = table.shape
    size = min(block_size, entries)
    count = -(-entries // size)

    def body(index, first, entries, of_hidden, tables, biases) -> list:  # noqa: ANN001
        probable = tf.exp(logits(first, entries) - scale[:, None])
        original = tf.one_hot(ids - first, entries)
        of_logits = (probable - original) * of_losses[:, None]
        of_bias, of_logits = tf.reduce_sum(of_logits, axis=0), tf.cast(of_logits, hidden.dtype)
        more = tf.matmul(of_logits, _rows(table, first, entries))
        of_rows = tf.matmul(of_logits, hidden, transpose_a=True)
        # All blocks of a `TensorArray` have one size.
        missing = size - entries
        return [
            of_hidden + tf.cast(more, tf.float32),
            tables.write(index, tf.pad(of_rows, [[0, missing], [0, 0]])),
            biases.write(index, tf.pad(of_bias, [[0, missing]])),
        ]

    state = [
        tf.zeros(tf.shape(hidden)),
        tf.TensorArray(table.dtype, size=count, element_shape=[size, width]),
        tf.TensorArray(tf.float32, size=count, element_shape=[size]),
    ]
    of_hidden, tables, biases = _over_blocks(entries, size, body, state)
    return (
        tf.cast(of_hidden, hidden.dtype),
        tf.reshape(tables.stack(), [count * size, width])[:entries],
        tf.cast(tf.reshape(biases.stack(), [count * size])[:entries], bias.dtype),
    )
