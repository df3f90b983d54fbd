"""Batches of a training whose records are divided into several streams, for several hosts.

Each stream reads its own shards and gives an equal part of every batch. In a step all streams must
have batches of one bucket, though none sees the lengths of another's examples. So the bucket of
each step is fixed beforehand, by a schedule that every host computes from the same sample of the
records. A stream fills up a batch with shorter examples where it has too few of the bucket.

A training with one stream, the default, does not enter this module; see `inputs.batching`.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_cmlm.inputs.batching import (
    Batches,
    BucketOf,
    Examples,
    bucket_function,
    flatten,
    group_batches,
    join,
    no_examples,
    single_batches,
    take_rows,
    unflatten,
)
from official_cmlm.inputs.data_position import SIZE
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.reader import Reader

# Steps after which a schedule begins again.
_PERIOD = 4096
# Examples that a schedule is made from.
_SAMPLE = 65536
# Fewest sentences of a stream's block.
_LEAST_SENTENCES = 8192
# Most examples of a bucket that wait in all streams together, unless blocks are larger: some dozens
# of MiB.
_MOST_WAITING = 1 << 15


def host_batches(plan: Plan, first: int, end: int, total: int) -> tf.data.Dataset:
    """Makes the rows of each training batch that belong to the replicas of one host.

    The dataset is endless, and all batches are complete.

    Args:
      plan: of a training with several streams.
      first, end: the host's replicas are numbers `first` … `end` − 1.
      total: replicas of all hosts.

    Returns:
      Batches, not padded yet; `position` is `[plan.streams, SIZE]`, 0 for the streams whose
      progress another host reports.
    """
    bucket_of, count, starts = bucket_function(plan), plan.streams, plan.starts
    sizes = [size // count for size in plan.batch_sizes]
    mixed = plan.config.shuffle_sentences
    steps = np.zeros(1, np.int64)
    if len(sizes) > 1:
        steps = _schedule_of_sample(Reader(plan, min(mixed, _SAMPLE)), bucket_of, sizes)
    block_sentences = max(mixed // count, min(mixed, _LEAST_SENTENCES))
    blocks_of = Reader(plan, block_sentences, count).of_streams(starts)
    numbers = tf.constant([[s.batched_from, s.step, s.done] for s in starts], tf.int64)
    skips = tf.constant([s.skip or [0] * len(sizes) for s in starts], tf.int64)

    def batches_of(stream: tf.Tensor) -> tf.data.Dataset:
        start = StreamStart(skips[stream], *tf.unstack(numbers[stream]))
        most = _MOST_WAITING // count
        mark = plan.fingerprint
        return in_schedule(blocks_of(stream), bucket_of, sizes, steps, mark, start, most)

    # In a batch, the rows of replica r begin at r / total, those of stream s at s / count.
    used = range(first * count // total, -(-end * count // total))
    # Two hosts may read one stream; the host with its first row reports its progress.
    reports = [[first * count <= stream * total < end * count] for stream in range(count)]
    around = [[used[0], count - used[-1] - 1], [0, SIZE - len(sizes) - 5]]
    parts = tf.data.Dataset.from_tensor_slices(np.array(list(used), np.int64)).interleave(
        batches_of, cycle_length=len(used), num_parallel_calls=len(used), deterministic=True
    )

    def merge(parts: Examples) -> Examples:
        """Merges the parts of a batch, `[used, rows, …]`, and takes the host's own rows."""
        position = tf.pad(parts.pop("position"), around) * tf.constant(reports, tf.int64)
        batch = {"bucket": parts.pop("bucket")[0], "position": position}
        rows = tf.shape(parts["key"])[1]
        begin, stop = (replica * rows * count // total - used[0] * rows for replica in (first, end))
        for name, value in parts.items():
            if isinstance(value, tf.RaggedTensor):
                merged = value.merge_dims(0, 1)
            else:
                merged = tf.reshape(value, tf.concat([[-1], tf.shape(value)[2:]], axis=0))
            batch[name] = merged[begin:stop]
        return batch

    # All streams have the same bucket in a step, so their parts have the same shape.
    return parts.batch(len(used), drop_remainder=True).map(merge)


def _schedule_of_sample(reader: Reader, bucket_of: BucketOf, sizes: list[int]) -> np.ndarray:
    """Makes the schedule from a sample of the records: the beginnings of a few shards."""
    counts = np.zeros(len(sizes), np.int64)
    for _, examples in reader.epoch(0):
        counts += np.bincount(bucket_of(examples).numpy(), minlength=len(sizes))
        if counts.sum() >= _SAMPLE // 2:
            break
    return schedule(choose_shares(counts), sizes)


def schedule(shares: Sequence[float], sizes: Sequence[int]) -> np.ndarray:
    """Returns the bucket of each of 4,096 steps, int64 `[4096]`; it depends on its arguments alone.

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


def choose_shares(lengths: Sequence[int]) -> list[float]:
    """Computes the shares of `schedule` for examples that are distributed as a sample.

    Shorter examples can take the place of longer ones, but not the other way round. So the shares
    of longer buckets exceed those of the sample: by 2 %, and by four standard errors, as the
    examples of a document are alike. If they are too small nevertheless, more and more long
    examples wait; see `newest_of_each_bucket`.

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


def choose_batches(
    bucket: tf.Tensor,
    sizes: Sequence[int],
    steps: np.ndarray,
    first: tf.Tensor,
    allowed: tf.Tensor | bool = True,
) -> Batches:
    """Finds as many batches as the pool allows, of the buckets that a schedule says.

    A batch holds the examples of its bucket that have waited longest. Where they are too few it is
    filled up with shorter ones, of the next shorter bucket first.

    Args:
      bucket, sizes: see `complete_batches`.
      steps: the `schedule`.
      first: int64 scalar, the number of the first batch's step.
      allowed: bool scalar; whether there are batches at all.
    """
    size, num_buckets = tf.constant(list(sizes), tf.int64), len(sizes)
    count = tf.size(bucket, tf.int64)
    members = tf.one_hot(bucket, num_buckets, dtype=tf.int64)
    total = tf.reduce_sum(members, axis=0)
    # No pool has examples for more batches than this.
    window = count // min(sizes) + 1
    buckets = tf.gather(tf.constant(steps), (first + tf.range(window)) % len(steps))
    demand = tf.cumsum(tf.one_hot(buckets, num_buckets, dtype=tf.int64) * size)
    # Batches of short buckets take short examples only.
    possible = tf.cumsum(demand, axis=1) <= tf.cumsum(total)
    possible = tf.logical_and(tf.reduce_all(possible, axis=1), allowed)
    batches = tf.reduce_sum(tf.cast(possible, tf.int64))
    buckets = buckets[:batches]
    slots = tf.reduce_sum(tf.one_hot(buckets, num_buckets, dtype=tf.int64) * size, axis=0)
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
    # If both are sorted by bucket, the longest first, example i fits place i.
    index = tf.gather(index, tf.argsort(-tf.gather(bucket, index), stable=True))
    rows = tf.gather(size, buckets)
    places = tf.argsort(-tf.repeat(buckets, rows), stable=True)
    order = tf.scatter_nd(places[:, tf.newaxis], index, [tf.size(index, tf.int64)])
    return Batches(order, rows, buckets, waiting)


def newest_of_each_bucket(bucket: tf.Tensor, num_buckets: int, most: tf.Tensor | int) -> tf.Tensor:
    """Finds the last `most` examples of each bucket, in order: int64 `[examples]`.

    `bucket`: int64 `[examples]`, the bucket of each example.
    """
    members = tf.one_hot(bucket, num_buckets, dtype=tf.int64)
    number = tf.reduce_sum(tf.cumsum(members, reverse=True) * members, axis=1)
    return tf.where(number <= tf.cast(most, tf.int64))[:, 0]


class StreamStart(NamedTuple):
    """The `DataPosition` of a stream as tensors: int64 `[buckets]` and three scalars."""

    skip: tf.Tensor
    batched_from: tf.Tensor
    step: tf.Tensor
    done: tf.Tensor


def in_schedule(
    blocks: tf.data.Dataset,
    bucket_of: BucketOf,
    sizes: Sequence[int],
    steps: np.ndarray,
    mark: int,
    start: StreamStart,
    most_waiting: int,
) -> tf.data.Dataset:
    """Makes batches of the buckets that a schedule says, each with its data `position`.

    Which examples fill up a batch depends on all examples of the block that completes it. So a
    position names, besides where reading starts, the block from which batches are made again, and
    how many of these are left out.

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
    # Each waiting example has its block, and the examples of each bucket that were read before it.
    spec = {
        **blocks.element_spec[1],
        "block": tf.TensorSpec([None], tf.int64),
        "before": tf.TensorSpec([None, count], tf.int64),
    }

    def follow(state: tuple, block: tuple) -> tuple:
        read, step, lost, waiting = state
        number, examples = block
        waiting = unflatten(spec, waiting)
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
        # The examples that are left out were in batches before the start.
        new = take_rows(examples, tf.where(own > tf.gather(start.skip, bucket))[:, 0])
        pool = join(waiting, new)
        batches = choose_batches(bucket_of(pool), sizes, steps, step, number >= start.batched_from)
        done = tf.range(1, tf.size(batches.sizes, tf.int64) + 1)[:, tf.newaxis]
        positions = tf.tile(at[tf.newaxis], [tf.size(done), 1])
        positions = tf.ensure_shape(tf.concat([positions, done], axis=1), [None, count + 5])
        waiting = take_rows(pool, batches.waiting)
        # Blocks before `batched_from` are read only for their waiting examples, of which none is
        # dropped.
        most = tf.where(number >= start.batched_from, tf.maximum(most_waiting, rows), tf.int32.max)
        newest = newest_of_each_bucket(bucket_of(waiting), count, most)
        before, lost = lost, lost + tf.size(batches.waiting) - tf.size(newest)
        with tf.control_dependencies([_say_lost(before, lost, tf.reduce_sum(read))]):
            waiting = flatten(take_rows(waiting, newest))
        for name in ("block", "before"):
            del pool[name]
        first = tf.where(number == start.batched_from, start.done, 0)
        groups = group_batches(pool, batches, {"position": positions}, first)
        step += tf.size(batches.sizes, tf.int64)
        return (read + tf.reduce_sum(members, axis=0), step, lost, waiting), groups

    def _position(
        waiting: Examples, bucket: tf.Tensor, read: tf.Tensor, number: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        """Computes all of a position but the number of batches that are left out."""
        # The oldest waiting example is the first; without one, reading starts at this block.
        block = tf.concat([waiting["block"], [number]], axis=0)[0]
        base = tf.concat([waiting["before"], read[tf.newaxis]], axis=0)[0]
        batched = read - tf.reduce_sum(tf.one_hot(bucket, count, dtype=tf.int64), axis=0)
        return tf.concat([[mark, block], batched - base, [number, step]], axis=0)

    state = (
        tf.zeros([count], tf.int64),
        start.step,
        tf.constant(0),
        flatten(no_examples(spec)),
    )
    return single_batches(blocks.scan(state, follow))


def _say_lost(before: tf.Tensor, lost: tf.Tensor, read: tf.Tensor) -> tf.Operation:
    """Reports examples that are left out: the first ones, and each time they have doubled.

    `before`, `lost`: examples that a stream has left out, before this block and with it.
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
