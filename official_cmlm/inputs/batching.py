"""Groups examples into batches of one length bucket each, a whole shard block at a time.

The batches that a block's examples complete are computed all at once; the other examples wait for
the next block. `tf.data.Dataset.bucket_by_sequence_length` gives the same batches as
`complete_batches`, but handles one example after the other, which costs more than all else in a
pipeline.

In this file, *waiting* examples have been read but are in no batch yet, and the *pool* is the
waiting examples followed by those of a new block. Trainings of several streams take their batches
from `inputs.streams`.
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from official_cmlm.inputs import data_position
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.reader import Reader

Examples = dict[str, tf.Tensor | tf.RaggedTensor]
"""Features of examples, `[examples, …]`; those of sequences are ragged."""

BucketOf = Callable[[Examples], tf.Tensor]
"""Examples -> the bucket of each, int64 `[examples]`."""


def training_batches(plan: Plan) -> tf.data.Dataset:
    """Makes endless batches of all records, not padded yet, each with its data `position`.

    With buckets, examples that complete no batch in their epoch wait for the next one. Without
    buckets, an epoch ends with an incomplete batch, unless the plan drops it.
    """
    reader, bucket_of, sizes = Reader(plan), bucket_function(plan), plan.batch_sizes
    (start,) = plan.starts

    def add_positions(
        blocks: tf.data.Dataset, skip: tuple, first: int | tf.Tensor
    ) -> tf.data.Dataset:
        """Adds the position to each example, and removes the examples to leave out."""
        tracker = data_position.Tracker(sizes, skip, plan.fingerprint)

        def follow(state: data_position.State, block: tuple) -> tuple:
            number, examples = block
            state, is_new, positions = tracker.step(state, number, bucket_of(examples))
            examples = {n: tf.ragged.boolean_mask(v, is_new) for n, v in examples.items()}
            return state, {**examples, "position": tf.boolean_mask(positions, is_new)}

        return blocks.scan(tracker.initial_state(first), follow)

    if plan.config.bucket_boundaries:
        blocks = add_positions(reader.from_start(start), start.skip, start.first_block)
        return in_order(blocks.map(lambda examples: (False, examples)), bucket_of, sizes)

    def of_epoch(blocks: tf.data.Dataset) -> tf.data.Dataset:
        return in_order(_ending(blocks, not plan.drop_remainder), bucket_of, sizes)

    def whole(epoch: tf.Tensor) -> tf.data.Dataset:
        first = data_position.block_number(epoch, 0)
        return of_epoch(add_positions(reader.epoch(epoch), (), first))

    if not start.block and not any(start.skip):
        # A whole epoch needs no dataset for the rest of one, which takes a second to build.
        return tf.data.Dataset.counter(start.epoch).flat_map(whole)
    rest = add_positions(reader.rest_of_epoch(start), start.skip, start.first_block)
    return of_epoch(rest).concatenate(tf.data.Dataset.counter(start.epoch + 1).flat_map(whole))


def validation_batches(plan: Plan) -> tf.data.Dataset:
    """Makes the batches of one pass over the records, not padded yet."""
    blocks = Reader(plan).epoch(0).map(lambda _, examples: examples)
    if plan.config.max_examples:
        blocks = _first_examples(blocks, plan.config.max_examples)
    ending = _ending(blocks, not plan.drop_remainder)
    return in_order(ending, bucket_function(plan), plan.batch_sizes)


def bucket_function(plan: Plan) -> BucketOf:
    """Returns a function from examples to their buckets, by the longest sequence of each."""
    bounds = tf.constant([length for length, _ in plan.buckets], tf.int64)

    def bucket_of(examples: Examples) -> tf.Tensor:
        lengths = [tf.cast(examples[name].row_lengths(), tf.int64) for name in plan.view.sequences]
        longest = tf.reduce_max(tf.stack(lengths), axis=0)
        return tf.searchsorted(bounds, longest, out_type=tf.int64)

    return bucket_of


def in_order(blocks: tf.data.Dataset, bucket_of: BucketOf, sizes: Sequence[int]) -> tf.data.Dataset:
    """Makes batches in the order in which they become complete.

    Args:
      blocks: (whether incomplete batches follow those of this block, the block's examples). If the
        examples have a `position` each, a batch has the position of its last example.
      bucket_of: examples -> their buckets.
      sizes: examples of a batch of each bucket.

    Returns:
      A dataset of batches: examples, not padded yet, and `bucket`, int64 scalar.
    """
    spec = blocks.element_spec[1]

    def follow(state: tuple[tf.Tensor, ...], block: tuple) -> tuple:
        flush, examples = block
        pool = join(unflatten(spec, state), examples)
        batches = complete_batches(bucket_of(pool), sizes, flush)
        waiting = take_rows(pool, batches.waiting)
        ends = tf.gather(batches.order, tf.cumsum(batches.sizes) - 1)
        whole = {name: tf.gather(pool.pop(name), ends) for name in ["position"] if name in pool}
        return flatten(waiting), group_batches(pool, batches, whole)

    return single_batches(blocks.scan(flatten(no_examples(spec)), follow))


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
    """Finds the batches of one bucket each, in the order in which they become complete.

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
    # A batch has the place of the example that completes it.
    turn = tf.math.unsorted_segment_max(index, number, all_batches)
    turn = tf.where(size_of < tf.gather(size, bucket_of), count + bucket_of, turn)
    in_turn = tf.argsort(turn)
    order = tf.gather(index, tf.argsort(tf.gather(turn, number) * count + index))
    return Batches(order, tf.gather(size_of, in_turn), tf.gather(bucket_of, in_turn), waiting)


def no_examples(spec: dict[str, tf.TypeSpec]) -> Examples:
    """Returns a pool without examples, of the features that a dataset's `element_spec` names."""
    pool: Examples = {}
    for name, feature in spec.items():
        if isinstance(feature, tf.RaggedTensorSpec):
            splits = tf.zeros([1], feature.row_splits_dtype)
            empty = tf.zeros([0], feature.dtype)
            pool[name] = tf.RaggedTensor.from_row_splits(empty, splits, validate=False)
        else:
            pool[name] = tf.zeros([0, *feature.shape[1:]], feature.dtype)
    return pool


def flatten(examples: Examples) -> tuple[tf.Tensor, ...]:
    """Returns dense tensors, in the order of the names: the state of a scan cannot be ragged."""
    return tuple(tf.nest.flatten(examples, expand_composites=True))


def unflatten(spec: dict[str, tf.TypeSpec], tensors: Sequence[tf.Tensor]) -> Examples:
    return tf.nest.pack_sequence_as(spec, list(tensors), expand_composites=True)


def join(first: Examples, second: Examples) -> Examples:
    return {name: tf.concat([first[name], second[name]], axis=0) for name in first}


def take_rows(examples: Examples, index: tf.Tensor) -> Examples:
    return {name: tf.gather(value, index) for name, value in examples.items()}


def group_batches(
    pool: Examples, batches: Batches, whole: dict[str, tf.Tensor], first: tf.Tensor | int = 0
) -> tuple:
    """Puts the pool's batches one after the other, for `single_batches`.

    Args:
      pool, batches: see `Batches`.
      whole: features of whole batches, `[batches, …]`.
      first: the first batch that is wanted.
    """
    whole = {**whole, "bucket": batches.buckets}
    ends = tf.cumsum(batches.sizes)
    return take_rows(pool, batches.order), ends, whole, tf.cast(first, tf.int64)


def single_batches(groups: tf.data.Dataset) -> tf.data.Dataset:
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
    """Takes rows `begin` … `end` − 1; slicing a ragged tensor takes many more operations."""
    if not isinstance(value, tf.RaggedTensor):
        return value[begin:end]
    splits = value.row_splits[begin : end + 1]
    values = value.values[splits[0] : splits[-1]]
    return tf.RaggedTensor.from_row_splits(values, splits - splits[0], validate=False)


def _first_examples(blocks: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Cuts blocks after the first `count` examples; nothing is read beyond them."""

    def cut(left: tf.Tensor, examples: Examples) -> tuple:
        rows = {name: value[:left] for name, value in examples.items()}
        return left - tf.size(rows["key"], tf.int64), (left, rows)

    counted = blocks.scan(tf.constant(count, tf.int64), cut)
    return counted.take_while(lambda left, _: left > 0).map(lambda _, examples: examples)


def _ending(blocks: tf.data.Dataset, flush: bool) -> tf.data.Dataset:
    """Adds an empty block for `in_order`; incomplete batches follow it if `flush` is true."""
    nothing = tf.data.Dataset.from_tensors((flush, no_examples(blocks.element_spec)))
    return blocks.map(lambda examples: (False, examples)).concatenate(nothing)
