"""Groups the examples of blocks into batches, a whole block at a time.

Which batches a block's examples complete is computed for all of them at once; examples that
complete none wait for the next block. `tf.data.Dataset.bucket_by_sequence_length` gives the same
batches as `complete_batches`, but handles every example by itself, which costs more than all else
in a pipeline.

In this file, *waiting* examples have been read but are in no batch yet, and the *pool* is the
waiting examples followed by those of a new block.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Examples = dict[str, tf.Tensor | tf.RaggedTensor]
"""Features of examples, `[examples, …]`; those of sequences are ragged."""

# Steps after which a schedule begins again.
_PERIOD = 4096
# Examples of a bucket that all streams hold together, if blocks have no more: some dozens of MiB.
MOST_WAITING = 1 << 15


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of the examples of a pool.

    Attributes:
      order: int64 `[batched]`, the pool's examples in the order of the batches.
      sizes: int64 `[batches]`, examples of each batch.
      buckets: int64 `[batches]`, the bucket of each batch.
      waiting: int64 `[waiting]`, the pool's other examples, in the pool's order.
    """

    order: tf.Tensor
    sizes: tf.Tensor
    buckets: tf.Tensor
    waiting: tf.Tensor


def complete_batches(
    bucket: tf.Tensor, sizes: Sequence[int], flush: tf.Tensor | bool = False
) -> Batches:
    """Batches of one bucket each, in the order in which they become complete.

    For example, of buckets 0 1 0 1 1 with 2 and 3 examples a batch, the batches are examples 0, 2
    and examples 1, 3, 4.

    Args:
      bucket: int64 `[pool]`, the bucket of each example.
      sizes: examples of a batch of each bucket.
      flush: bool scalar; whether incomplete batches follow the complete ones, by bucket.
    """
    size = tf.constant(list(sizes), tf.int64)
    count = tf.size(bucket, tf.int64)
    members = tf.one_hot(bucket, len(sizes), dtype=tf.int64)
    # The number of each example's batch within its bucket.
    batch = tf.reduce_sum(tf.cumsum(members, exclusive=True) * members, axis=1)
    batch //= tf.gather(size, bucket)
    total = tf.reduce_sum(members, axis=0)
    batches = total // size + tf.cast(tf.logical_and(flush, total % size > 0), tf.int64)
    is_batched = batch < tf.gather(batches, bucket)
    index, waiting = tf.where(is_batched)[:, 0], tf.where(~is_batched)[:, 0]
    # Over all buckets, batches are numbered bucket by bucket.
    number = tf.gather(tf.cumsum(batches, exclusive=True), bucket) + batch
    number = tf.gather(number, index)
    all_batches = tf.reduce_sum(batches)
    bucket_of = tf.repeat(tf.range(len(sizes), dtype=tf.int64), batches)
    size_of = tf.math.unsorted_segment_sum(tf.ones_like(index), number, all_batches)
    # A batch's place is that of the example that completes it.
    turn = tf.math.unsorted_segment_max(index, number, all_batches)
    turn = tf.where(size_of < tf.gather(size, bucket_of), count + bucket_of, turn)
    in_turn = tf.argsort(turn)
    order = tf.gather(index, tf.argsort(tf.gather(turn, number) * count + index))
    return Batches(order, tf.gather(size_of, in_turn), tf.gather(bucket_of, in_turn), waiting)


def schedule(shares: Sequence[float], sizes: Sequence[int]) -> np.ndarray:
    """The bucket of each step: int64 `[4096]`, the same for everyone who knows the arguments.

    Buckets follow each other as evenly as their shares allow.

    Args:
      shares: for each bucket, the share of the examples that its batches are to hold.
      sizes: examples of a batch of each bucket.
    """
    batches = np.asarray(shares, float) / np.asarray(sizes, float)
    # Each bucket has a step, or its examples would wait for ever.
    counts = np.maximum(1, np.round(batches / batches.sum() * _PERIOD)).astype(np.int64)
    counts[np.argmax(counts)] += _PERIOD - counts.sum()
    bucket = np.repeat(np.arange(len(counts)), counts)
    number = np.concatenate([np.arange(n) for n in counts])
    return bucket[np.argsort((number + 0.5) / counts[bucket], kind="stable")]


def scheduled_shares(lengths: Sequence[int]) -> list[float]:
    """The shares of `schedule` for examples that are distributed as a sample.

    Shorter examples can take the place of longer ones, but not the other way round. So the shares
    of longer buckets exceed those of the sample: by 2 %, and by four standard errors, as the
    examples of a document are alike. If they are too small nevertheless, more and more long
    examples wait; see `newest`.

    Args:
      lengths: examples of the sample in each bucket, shortest bucket first.
    """
    counts = np.asarray(lengths, float)
    total = max(1.0, counts.sum())
    # The share of examples that are longer than each bucket.
    longer = 1 - np.cumsum(counts) / total
    margin = 0.02 * longer + 4 * np.sqrt(longer * (1 - longer) / total)
    longer = np.minimum(longer + margin, 1)
    longer[-1] = 0
    return list(-np.diff(longer, prepend=1.0))


def scheduled_batches(
    bucket: tf.Tensor,
    sizes: Sequence[int],
    steps: np.ndarray,
    first: tf.Tensor,
    allowed: tf.Tensor | bool = True,
) -> Batches:
    """As many batches as the pool allows, of the buckets that a schedule says.

    A batch holds the examples of its bucket that have waited longest. Where they are too few it is
    filled up with shorter ones, of the next shorter bucket first.

    Args:
      bucket: int64 `[pool]`, the bucket of each example.
      sizes: examples of a batch of each bucket.
      steps: the `schedule`.
      first: int64 scalar, the number of the first batch's step.
      allowed: bool scalar; whether there are batches at all.
    """
    size, num_buckets = tf.constant(list(sizes), tf.int64), len(sizes)
    count = tf.size(bucket, tf.int64)
    members = tf.one_hot(bucket, num_buckets, dtype=tf.int64)
    total = tf.reduce_sum(members, axis=0)
    # Longer than the pool can reach.
    window = count // min(sizes) + 1
    wanted = tf.gather(tf.constant(steps), (first + tf.range(window)) % len(steps))
    demand = tf.cumsum(tf.one_hot(wanted, num_buckets, dtype=tf.int64) * size)
    # Batches of short buckets take short examples only.
    possible = tf.cumsum(demand, axis=1) <= tf.cumsum(total)
    possible = tf.logical_and(tf.reduce_all(possible, axis=1), allowed)
    batches = tf.reduce_sum(tf.cast(possible, tf.int64))
    wanted = wanted[:batches]
    slots = tf.reduce_sum(tf.one_hot(wanted, num_buckets, dtype=tf.int64) * size, axis=0)
    used, missing = [], tf.constant(0, tf.int64)
    for number in reversed(range(num_buckets)):
        needed = slots[number] + missing
        used.append(tf.minimum(total[number], needed))
        missing = needed - used[-1]
    used = tf.stack(used[::-1])
    # The examples of a bucket are used in their order.
    before = tf.reduce_sum(tf.cumsum(members, exclusive=True) * members, axis=1)
    is_used = before < tf.gather(used, bucket)
    index, waiting = tf.where(is_used)[:, 0], tf.where(~is_used)[:, 0]
    # Both sorted by bucket, the longest first, example i fits place i.
    index = tf.gather(index, tf.argsort(-tf.gather(bucket, index), stable=True))
    rows = tf.gather(size, wanted)
    places = tf.argsort(-tf.repeat(wanted, rows), stable=True)
    order = tf.scatter_nd(places[:, tf.newaxis], index, [tf.size(index, tf.int64)])
    return Batches(order, rows, wanted, waiting)


def newest(bucket: tf.Tensor, num_buckets: int, most: tf.Tensor | int) -> tf.Tensor:
    """The last examples of each bucket, in their order: int64 `[at most num_buckets · most]`.

    Args:
      bucket: int64 `[examples]`, the bucket of each example.
      num_buckets: how many buckets there are.
      most: examples of each bucket.
    """
    members = tf.one_hot(bucket, num_buckets, dtype=tf.int64)
    number = tf.reduce_sum(tf.cumsum(members, reverse=True) * members, axis=1)
    return tf.where(number <= tf.cast(most, tf.int64))[:, 0]


def in_order(
    blocks: tf.data.Dataset, bucket_of: Callable[[Examples], tf.Tensor], sizes: Sequence[int]
) -> tf.data.Dataset:
    """Batches in the order in which they become complete.

    Args:
      blocks: (whether incomplete batches follow those of this block, the block's examples). If the
        examples have a `position` each, a batch has that of its last.
      bucket_of: examples -> their buckets, int64 `[examples]`.
      sizes: examples of a batch of each bucket.

    Returns:
      A dataset of batches: examples, not padded yet, and `bucket`, int64 scalar.
    """
    spec = blocks.element_spec[1]

    def follow(state: tuple[tf.Tensor, ...], block: tuple) -> tuple:
        flush, examples = block
        pool = _joined(_unflattened(spec, state), examples)
        batches = complete_batches(bucket_of(pool), sizes, flush)
        waiting = _taken(pool, batches.waiting)
        ends = tf.gather(batches.order, tf.cumsum(batches.sizes) - 1)
        whole = {name: tf.gather(pool.pop(name), ends) for name in ["position"] if name in pool}
        return _flattened(waiting), _grouped(pool, batches, whole)

    return _single(blocks.scan(_flattened(no_examples(spec)), follow))


class Start(NamedTuple):
    """The start of a stream's batches, see `data_position.Start`; int64 `[buckets]` and scalars."""

    skip: tf.Tensor
    plan: tf.Tensor
    step: tf.Tensor
    done: tf.Tensor


def in_schedule(
    blocks: tf.data.Dataset,
    bucket_of: Callable[[Examples], tf.Tensor],
    sizes: Sequence[int],
    steps: np.ndarray,
    mark: int,
    start: Start,
    most_waiting: int,
) -> tf.data.Dataset:
    """Batches of the buckets that a schedule says, each with its data `position`.

    Which examples fill up a batch depends on all examples of the block that completes it. So a
    position names, beside where reading starts, the block from which batches are made again, and
    how many of these are done with.

    Examples that wait are bounded: of a bucket at most `most_waiting`, or as many examples as a
    block has if that is more. Where the schedule has too few batches of a bucket, its oldest
    examples are left out, and a line on standard error says how many, whenever their number has
    doubled.

    Args:
      blocks: (block number, its examples), from `start` on.
      bucket_of, sizes: see `in_order`.
      steps: the `schedule`.
      mark: see `data_position.fingerprint`.
      start: where reading starts.
      most_waiting: examples of each bucket.

    Returns:
      See `in_order`.
    """
    count = len(sizes)
    # Of each waiting example: its block, and the examples of each bucket that were read before it.
    spec = {
        **blocks.element_spec[1],
        "block": tf.TensorSpec([None], tf.int64),
        "before": tf.TensorSpec([None, count], tf.int64),
    }

    def follow(state: tuple, block: tuple) -> tuple:
        read, step, lost, waiting = state
        number, examples = block
        waiting = _unflattened(spec, waiting)
        at = _position(waiting, bucket_of(waiting), read, number, step)
        bucket = bucket_of(examples)
        members = tf.one_hot(bucket, count, dtype=tf.int64)
        own = tf.reduce_sum((read + tf.cumsum(members)) * members, axis=1)
        rows = tf.size(bucket)
        examples = {
            **examples,
            "block": tf.fill([rows], number),
            "before": tf.tile(read[tf.newaxis], [rows, 1]),
        }
        # The others were in batches before the start.
        new = _taken(examples, tf.where(own > tf.gather(start.skip, bucket))[:, 0])
        pool = _joined(waiting, new)
        batches = scheduled_batches(bucket_of(pool), sizes, steps, step, number >= start.plan)
        done = tf.range(1, tf.size(batches.sizes, tf.int64) + 1)[:, tf.newaxis]
        positions = tf.tile(at[tf.newaxis], [tf.size(done), 1])
        positions = tf.ensure_shape(tf.concat([positions, done], axis=1), [None, count + 5])
        waiting = _taken(pool, batches.waiting)
        # Blocks before the plan are read for what waited then; a smaller one of them drops nothing.
        most = tf.where(number >= start.plan, tf.maximum(most_waiting, rows), tf.int32.max)
        kept = newest(bucket_of(waiting), count, most)
        before, lost = lost, lost + tf.size(batches.waiting) - tf.size(kept)
        with tf.control_dependencies([_say_lost(before, lost, tf.reduce_sum(read))]):
            waiting = _flattened(_taken(waiting, kept))
        for name in ("block", "before"):
            del pool[name]
        first = tf.where(number == start.plan, start.done, 0)
        found = _grouped(pool, batches, {"position": positions}, first)
        step += tf.size(batches.sizes, tf.int64)
        return (read + tf.reduce_sum(members, axis=0), step, lost, waiting), found

    def _position(
        waiting: Examples, bucket: tf.Tensor, read: tf.Tensor, number: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        """All of a position but the number of batches that are done with."""
        # The oldest waiting example is the first; without one, reading starts at this block.
        block = tf.concat([waiting["block"], [number]], axis=0)[0]
        base = tf.concat([waiting["before"], read[tf.newaxis]], axis=0)[0]
        batched = read - tf.reduce_sum(tf.one_hot(bucket, count, dtype=tf.int64), axis=0)
        return tf.concat([[mark, block], batched - base, [number, step]], axis=0)

    state = (
        tf.zeros([count], tf.int64),
        start.step,
        tf.constant(0),
        _flattened(no_examples(spec)),
    )
    return _single(blocks.scan(state, follow))


def _say_lost(before: tf.Tensor, lost: tf.Tensor, read: tf.Tensor) -> tf.Operation:
    """Reports examples that are left out: the first ones, and each time they have doubled.

    Args:
      before, lost: examples that a stream has left out, before this block and with it.
      read: examples that it has read.
    """

    def doublings(count: tf.Tensor) -> tf.Tensor:
        return tf.floor(tf.math.log(tf.maximum(tf.cast(count, tf.float32), 0.5)) / np.log(2.0))

    def say() -> tf.Operation:
        return tf.print(
            "warning: of",
            read,
            "examples a stream left out",
            lost,
            "long ones, of which its sample had fewer; train_data.streams: 1 leaves none out",
            output_stream=sys.stderr,
        )

    return tf.cond(doublings(lost) > doublings(before), say, tf.no_op)


def no_examples(spec: dict[str, tf.TypeSpec]) -> Examples:
    """A pool without examples, of the features that a dataset's `element_spec` names."""
    found: Examples = {}
    for name, each in spec.items():
        shape = [0, *each.shape.as_list()[1:]]
        if isinstance(each, tf.RaggedTensorSpec):
            splits = tf.zeros([1], each.row_splits_dtype)
            empty = tf.zeros([0], each.dtype)
            found[name] = tf.RaggedTensor.from_row_splits(empty, splits, validate=False)
        else:
            found[name] = tf.zeros(shape, each.dtype)
    return found


def _flattened(examples: Examples) -> tuple[tf.Tensor, ...]:
    """As dense tensors, in the order of the names: the state of a scan has no ragged ones."""
    return tuple(tf.nest.flatten(examples, expand_composites=True))


def _unflattened(spec: dict[str, tf.TypeSpec], tensors: Sequence[tf.Tensor]) -> Examples:
    return tf.nest.pack_sequence_as(spec, list(tensors), expand_composites=True)


def _joined(first: Examples, second: Examples) -> Examples:
    return {name: tf.concat([first[name], second[name]], axis=0) for name in first}


def _taken(examples: Examples, index: tf.Tensor) -> Examples:
    return {name: tf.gather(value, index) for name, value in examples.items()}


def _grouped(
    pool: Examples,
    batches: Batches,
    whole: dict[str, tf.Tensor],
    first: tf.Tensor | None = None,
) -> tuple:
    """The pool's batches one after the other, for `_single`.

    Args:
      pool, batches: see `Batches`.
      whole: features of whole batches, `[batches, …]`.
      first: int64 scalar, the first batch that is wanted. Default: 0.
    """
    first = tf.constant(0, tf.int64) if first is None else first
    ends = tf.cumsum(batches.sizes)
    return _taken(pool, batches.order), ends, {**whole, "bucket": batches.buckets}, first


def _single(groups: tf.data.Dataset) -> tf.data.Dataset:
    """Splits groups of batches into batches."""

    def split(
        examples: Examples, ends: tf.Tensor, whole: dict[str, tf.Tensor], first: tf.Tensor
    ) -> tf.data.Dataset:
        starts = tf.concat([tf.zeros([1], tf.int64), ends], axis=0)

        def batch(number: tf.Tensor) -> Examples:
            rows = {n: _rows(v, starts[number], ends[number]) for n, v in examples.items()}
            return {**rows, **{name: value[number] for name, value in whole.items()}}

        return tf.data.Dataset.range(first, tf.size(ends, tf.int64)).map(batch)

    return groups.prefetch(1).flat_map(split)


def _rows(
    value: tf.Tensor | tf.RaggedTensor, begin: tf.Tensor, end: tf.Tensor
) -> tf.Tensor | tf.RaggedTensor:
    """Rows `begin` … `end` − 1; slicing a ragged tensor directly takes many more operations."""
    if not isinstance(value, tf.RaggedTensor):
        return value[begin:end]
    splits = value.row_splits[begin : end + 1]
    values = value.values[splits[0] : splits[-1]]
    return tf.RaggedTensor.from_row_splits(values, splits - splits[0], validate=False)
