"""Turns records into batches of a view's examples, not padded yet; the seed decides them alone."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import batching, data_position, hashing
from official_cmlm.inputs.records import Blocks, Rest, check_rows, check_text, parse_block
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest


@tf.autograph.experimental.do_not_convert
def check_examples(config: DataConfig, manifest: Manifest, view: View) -> None:
    """Checks that the records give at least one example of a view.

    Without one, training would read epoch after epoch and never get a batch.

    Args:
      config, manifest, view: see `build_dataset`.

    Raises:
      UserError: if the records give no example of this view, lack the text that it reads or a
        chosen language, or if their rows do not align.
    """
    check_text(config, manifest, view)
    once = config.replace(is_training=False, shuffle_sentences=1024)
    check_rows(once, manifest)
    for _, examples in Reader(once, manifest, view).one_pass():
        if tf.size(examples["key"]):
            return
    raise UserError(
        f"{config.named_folders}: no record gives a {type(view).__name__} example with segment: "
        f"{config.segment} and seq_length {config.seq_length}; it takes {view.needs}"
    )


# Blocks of a stream that are built at the same time; each holds about as much as the next.
_PARALLEL_BLOCKS = 4
# Examples that a schedule is made from.
_SAMPLE = 65536
# Fewest sentences of a stream's block.
_LEAST_SENTENCES = 8192


class Reader:
    """Reads (block number, examples of the block in random order).

    Validation permutes the examples too: neighbouring pairs of a document share a sentence, and in
    one batch that sentence would be an anchor and find itself among the candidates.
    """

    def __init__(self, config: DataConfig, manifest: Manifest, view: View) -> None:
        self._blocks, self._view = Blocks(config, manifest), view
        self._vocab_size = manifest.vocab_size

    def in_blocks_of(self, shuffle_sentences: int, streams: int = 1) -> "Reader":
        """Reads blocks of about so many sentences at most, of records in so many streams."""
        reader = copy.copy(self)
        reader._blocks = self._blocks.divided(streams, shuffle_sentences)
        return reader

    def one_pass(self) -> tf.data.Dataset:
        """All blocks of epoch 0."""
        return self.epoch(tf.constant(0, tf.int64))

    def epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """All blocks of an epoch (int64 scalar)."""
        return self._examples(epoch, self._blocks.epoch(epoch))

    def rest_of_epoch(self, start: data_position.Start) -> tf.data.Dataset:
        """The blocks of the epoch where `start` is, from its block on."""
        epoch = tf.constant(start.epoch, tf.int64)
        if not start.block:
            return self.epoch(epoch)
        return self._examples(epoch, self._blocks.rest_of_epoch(start.epoch, start.block))

    def from_start(self, start: data_position.Start) -> tf.data.Dataset:
        """The blocks of all epochs from `start` on, endless."""
        later = tf.data.Dataset.counter(start.next_epoch).flat_map(self.epoch)
        return self.rest_of_epoch(start).concatenate(later) if start.block else later

    def of_streams(
        self, starts: Sequence[data_position.Start]
    ) -> Callable[[tf.Tensor], tf.data.Dataset]:
        """A function from a stream's number (int64 scalar) to its blocks, endless.

        One function for all, as a pipeline takes seconds to build.
        """
        rests = [self._blocks.rest(s.epoch, s.block, n) for n, s in enumerate(starts)]
        lists = [tf.ragged.stack([rest[i] for rest in rests]) for i in range(3)]
        numbers = [tf.constant([rest[i] for rest in rests], tf.int64) for i in (3, 4)]
        epochs = tf.constant([start.epoch for start in starts], tf.int64)

        def blocks(stream: tf.Tensor) -> tf.data.Dataset:
            epoch = epochs[stream]
            rest = Rest(*(each[stream] for each in (*lists, *numbers)))
            first = self._examples(epoch, self._blocks.read(epoch, rest))
            later = tf.data.Dataset.counter(epoch + 1).flat_map(
                lambda epoch: self._examples(epoch, self._blocks.epoch(epoch, stream))
            )
            return first.concatenate(later)

        return blocks

    def _examples(self, epoch: tf.Tensor, blocks: tf.data.Dataset) -> tf.data.Dataset:
        view = self._view

        def one_block(number: tf.Tensor, serialized: tf.Tensor, keys: tf.Tensor) -> tuple:
            block = parse_block(view.kind, serialized, keys, view.reads_text, self._vocab_size)
            examples = view(block)
            order = hashing.permutation(examples["key"], hashing.SALT_SHUFFLE)
            number = data_position.block_number(epoch, number)
            return number, {name: tf.gather(value, order) for name, value in examples.items()}

        return blocks.map(one_block, num_parallel_calls=_PARALLEL_BLOCKS, deterministic=True)


def validation_batches(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    drop_remainder: bool,
) -> tf.data.Dataset:
    """The batches of one pass over the records; see `batching.in_order`.

    Args:
      config, manifest, view: see `build_dataset`.
      buckets: (length, examples of a batch) of each bucket.
      drop_remainder: leave out incomplete batches.
    """
    blocks = Reader(config, manifest, view).one_pass().map(lambda _, examples: examples)
    if config.max_examples:
        blocks = _first_examples(blocks, config.max_examples)
    sizes = [size for _, size in buckets]
    ending = _ending(blocks, not drop_remainder)
    return batching.in_order(ending, _bucket_of(view, buckets), sizes)


def training_batches(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    mark: int,
    start: data_position.Start,
    drop_remainder: bool,
) -> tf.data.Dataset:
    """Endless batches of all records, each with its data `position`.

    With buckets, examples that complete no batch in their epoch wait for the next one. Without, an
    epoch ends with an incomplete batch.

    Args:
      config, manifest, view, buckets, drop_remainder: see `validation_batches`.
      mark: see `data_position.fingerprint`.
      start: where reading starts.
    """
    reader = Reader(config, manifest, view)
    bucket_of, sizes = _bucket_of(view, buckets), [size for _, size in buckets]

    def positioned(blocks: tf.data.Dataset, skip: tuple, first: int | tf.Tensor) -> tf.data.Dataset:
        """Examples with their positions, without the examples to leave out."""
        tracker = data_position.Tracker(sizes, skip, mark)

        def follow(state: data_position.State, block: tuple) -> tuple:
            number, examples = block
            state, is_new, positions = tracker.step(state, number, bucket_of(examples))
            examples = {n: tf.ragged.boolean_mask(v, is_new) for n, v in examples.items()}
            return state, {**examples, "position": tf.boolean_mask(positions, is_new)}

        return blocks.scan(tracker.initial_state(first), follow)

    if config.bucket_boundaries:
        blocks = positioned(reader.from_start(start), start.skip, start.first_block)
        return batching.in_order(blocks.map(lambda each: (False, each)), bucket_of, sizes)

    def whole(epoch: tf.Tensor) -> tf.data.Dataset:
        blocks = positioned(reader.epoch(epoch), (), data_position.block_number(epoch, 0))
        return batching.in_order(_ending(blocks, not drop_remainder), bucket_of, sizes)

    if not start.block and not any(start.skip):
        # The epoch from its beginning is a whole one: to build it by itself takes a second.
        return tf.data.Dataset.counter(start.epoch).flat_map(whole)
    rest = positioned(reader.rest_of_epoch(start), start.skip, start.first_block)
    rest = batching.in_order(_ending(rest, not drop_remainder), bucket_of, sizes)
    return rest.concatenate(tf.data.Dataset.counter(start.epoch + 1).flat_map(whole))


def stream_batches(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    mark: int,
    starts: Sequence[data_position.Start],
    used: Sequence[int],
) -> tf.data.Dataset:
    """As `training_batches`, the parts of each batch that some streams give; never incomplete.

    Which bucket a step has is the same for all streams: it follows from a sample of the records.

    Args:
      config, manifest, view, mark: see `training_batches`.
      buckets: as there, with the examples of one stream's part.
      starts: where the reading of each of the streams starts.
      used: numbers of the streams that are wanted.

    Returns:
      Batches of the streams' rows, in their order; `position` is `[used, 5 + buckets]`.
    """
    bucket_of, sizes = _bucket_of(view, buckets), [size for _, size in buckets]
    reader, count = Reader(config, manifest, view), len(starts)
    sentences = min(config.shuffle_sentences, _LEAST_SENTENCES)
    sentences = max(config.shuffle_sentences // count, sentences)
    steps = np.zeros(1, np.int64)
    if len(buckets) > 1:
        sample = reader.in_blocks_of(min(config.shuffle_sentences, _SAMPLE))
        steps = _schedule(sample, bucket_of, sizes)
    blocks_of = reader.in_blocks_of(sentences, count).of_streams(starts)
    fields = ("plan", "step", "done")
    numbers = tf.constant([[getattr(s, field) for field in fields] for s in starts], tf.int64)
    skips = tf.constant([s.skip or [0] * len(sizes) for s in starts], tf.int64)

    def batches_of(stream: tf.Tensor) -> tf.data.Dataset:
        plan, step, done = tf.unstack(numbers[stream])
        start = batching.Start(skips[stream], plan, step, done)
        most = batching.MOST_WAITING // count
        return batching.in_schedule(blocks_of(stream), bucket_of, sizes, steps, mark, start, most)

    parts = tf.data.Dataset.from_tensor_slices(np.array(list(used), np.int64)).interleave(
        batches_of, cycle_length=len(used), num_parallel_calls=len(used), deterministic=True
    )
    # All streams have the same bucket in a step, so their parts have the same shape.
    return parts.batch(len(used), drop_remainder=True).map(_merged)


def _merged(parts: batching.Examples) -> batching.Examples:
    """The parts of a batch, `[streams, rows, …]`, as one."""
    found = {"bucket": parts.pop("bucket")[0], "position": parts.pop("position")}
    for name, value in parts.items():
        if isinstance(value, tf.RaggedTensor):
            found[name] = value.merge_dims(0, 1)
        else:
            found[name] = tf.reshape(value, tf.concat([[-1], tf.shape(value)[2:]], axis=0))
    return found


def _schedule(
    reader: Reader, bucket_of: Callable[[batching.Examples], tf.Tensor], sizes: list[int]
) -> np.ndarray:
    """The bucket of each step, from a sample of the records: the beginnings of a few shards."""
    counts = np.zeros(len(sizes), np.int64)
    for _, examples in reader.one_pass():
        counts += np.bincount(bucket_of(examples).numpy(), minlength=len(sizes))
        if counts.sum() >= _SAMPLE // 2:
            break
    return batching.schedule(batching.scheduled_shares(counts), sizes)


def _bucket_of(
    view: View, buckets: list[tuple[int, int]]
) -> Callable[[batching.Examples], tf.Tensor]:
    """Examples -> the bucket of each, by its longest sequence: int64 `[examples]`."""
    bounds = tf.constant([length for length, _ in buckets], tf.int64)

    def bucket_of(examples: batching.Examples) -> tf.Tensor:
        lengths = [tf.cast(examples[name].row_lengths(), tf.int64) for name in view.sequences]
        longest = tf.reduce_max(tf.stack(lengths), axis=0)
        return tf.searchsorted(bounds, longest, out_type=tf.int64)

    return bucket_of


def _first_examples(blocks: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Blocks with the first `count` examples; nothing is read behind them."""

    def cut(left: tf.Tensor, examples: batching.Examples) -> tuple:
        taken = {name: value[:left] for name, value in examples.items()}
        return left - tf.size(taken["key"], tf.int64), (left, taken)

    counted = blocks.scan(tf.constant(count, tf.int64), cut)
    return counted.take_while(lambda left, _: left > 0).map(lambda _, examples: examples)


def _ending(blocks: tf.data.Dataset, flush: bool) -> tf.data.Dataset:
    """(whether incomplete batches follow, examples) of each block; they follow the last."""
    nothing = tf.data.Dataset.from_tensors((flush, batching.no_examples(blocks.element_spec)))
    return blocks.map(lambda examples: (False, examples)).concatenate(nothing)
