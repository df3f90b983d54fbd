"""Reads shards into blocks of examples, in an order that depends on the seed alone.

Resuming inside an epoch needs the state of tf.data's interleave after many records;
`resume_interleave` computes it from the shards' sizes, without reading.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import data_position, hashing
from official_cmlm.inputs.data_position import DataPosition
from official_cmlm.inputs.plan import Plan, deal
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest, join, parts_of

# Shards that are read in parallel, and rows that are taken from each in turn. This mixes documents
# of distant parts of a corpus into one block without reading anything twice.
_CYCLE_LENGTH = 16
# The least number of shards of a stream that are read in parallel.
_LEAST_CYCLE = 4
_BLOCK_LENGTH = 8
# Bytes of a shard that are read at once. A request to an object store takes about as long as the
# transfer of this many bytes.
READ_BYTES = 4 << 20
# Blocks that are built at the same time, all of about the same size.
_PARALLEL_BLOCKS = 4

Block = documents.DocumentBlock | pairs.PairBlock


class Unread(NamedTuple):
    """The records of an epoch that are still to be read, in turn; arrays or tensors.

    Attributes:
      order: int32 `[shards]`, numbers of the shards in the order of opening.
      repetition: int32 `[shards]`, how often each was opened before in the epoch.
      offsets: int64 `[shards]`, the first record to read of each.
      first: number of the first block.
      skip: records before the first block's.
    """

    order: tf.Tensor | np.ndarray
    repetition: tf.Tensor | np.ndarray
    offsets: tf.Tensor | np.ndarray
    first: tf.Tensor | int
    skip: tf.Tensor | int


class Blocks:
    """The blocks of the epochs of a folder, or of several that are read as one.

    A block holds records of about `block_sentences` sentences at most, and only whole rows of
    translations. Training draws a new order of the shards in each epoch, and reads shards of some
    languages and folders several times or not at all, as `repetitions` say. Validation reads the
    shards in their order, always as epoch 0.

    No file is opened before its records are needed, and each is opened once for a reading. A shard
    that ends too early raises `tf.errors.FailedPreconditionError`, see `records.corruption`.

    Divided into streams, each shard of an epoch belongs to one of them.

    A block is (number of the block in its epoch, serialised records, their keys): int64 scalar,
    string `[records]`, int64 `[records]`.
    """

    def __init__(
        self,
        config: DataConfig,
        manifest: Manifest,
        repetitions: Sequence[float],
        block_sentences: int | None = None,
        streams: int = 1,
    ) -> None:
        """Chooses the shards.

        Args:
          config, manifest, repetitions, streams: see `Plan`.
          block_sentences: sentences of a block; default: `config.shuffle_sentences`.
        """
        self._config, self._manifest, self._streams = config, manifest, streams
        self._block_sentences = block_sentences or config.shuffle_sentences
        self._counts = np.array([shard.records for shard in manifest.shards], np.int64)
        is_read = np.array(repetitions) > 0
        self._num_read, self._records_read = int(is_read.sum()), int(self._counts[is_read].sum())
        # These are made once, outside of the graphs of datasets, each of which would hold a copy.
        with tf.init_scope(), tf.device("CPU:0"):
            self._repetitions = tf.constant(repetitions, tf.float32)
            self._records = tf.constant(self._counts)
            self._starts = tf.constant(np.cumsum(self._counts) - self._counts)
            self._paths = tf.constant(shard_paths(config, manifest), tf.string)

    def epoch(self, epoch: tf.Tensor | int, stream: tf.Tensor | int = 0) -> tf.data.Dataset:
        """Reads all blocks of an epoch (int64 scalar), or of one stream's part of it."""
        order, repetition = self._order(epoch, stream)
        return self.read(epoch, Unread(order, repetition, tf.zeros_like(order, tf.int64), 0, 0))

    def find_unread(self, epoch: int, first: int, stream: int = 0) -> Unread:
        """Computes what to read for the blocks of an epoch from number `first` on.

        Shards that were read to their end are not opened. In the shards that are open at block
        `first`, the earlier records are skipped one by one.
        """
        order, repetition = self._order(epoch, stream)
        order, repetition = order.numpy(), repetition.numpy()
        sizes = self._counts[order].tolist()
        skip = min(first * self._rows(), sum(sizes))
        opened, remainder = resume_interleave(
            sizes, self._cycle_length(), self._block_length(), skip
        )
        index, offsets = np.array(opened, np.int64).reshape(-1, 2).T
        return Unread(order[index], repetition[index], offsets, first, remainder)

    def read(self, epoch: tf.Tensor | int, unread: Unread) -> tf.data.Dataset:
        """Reads the blocks of a part of an epoch (int64 scalar)."""

        def read_shard(
            shard: tf.Tensor, repetition: tf.Tensor, offset: tf.Tensor
        ) -> tf.data.Dataset:
            stored = tf.data.TFRecordDataset(self._paths[shard], buffer_size=READ_BYTES)
            # A file that was cut between two records ends without an error of its own.
            count = tf.data.experimental.assert_cardinality(self._records[shard] - offset)
            stored = stored.skip(offset).apply(count)
            # A repeated record has another number, and so other random choices.
            start = self._starts[shard] + tf.cast(repetition, tf.int64) * self._manifest.records
            return stored.enumerate(start=start + offset)

        stored = tf.data.Dataset.from_tensor_slices(tuple(unread[:3])).interleave(
            read_shard,
            cycle_length=self._cycle_length(),
            block_length=self._block_length(),
            deterministic=True,
        )
        blocks = stored.skip(unread.skip).batch(self._rows()).enumerate(start=unread.first)
        return blocks.map(
            lambda number, block: (number, block[1], hashing.fold(self._key(epoch), block[0]))
        )

    def _order(
        self, epoch: tf.Tensor | int, stream: tf.Tensor | int = 0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the shards in the order of opening, and numbers the openings of each."""
        epoch_key = self._key(epoch)
        count = len(self._manifest.shards)
        shards = tf.range(count)
        times = self._repetitions
        if self._config.is_training:
            shard_keys = hashing.fold(epoch_key, shards)
            extra = hashing.uniform(shard_keys, 1, hashing.SALT_REPETITIONS)[:, 0]
            # In float32, the sum of a whole number and almost 1 would be rounded up.
            times = tf.where(times == tf.floor(times), times, tf.floor(times + extra))
        times = tf.cast(tf.math.ceil(times), tf.int32)
        order = tf.repeat(shards, times)
        repetition = tf.ragged.range(times).flat_values
        if self._config.is_training:
            keys = hashing.fold(epoch_key, order + repetition * count)
            permutation = hashing.permutation(keys, hashing.SALT_SHARDS)
            order, repetition = tf.gather(order, permutation), tf.gather(repetition, permutation)
        if self._streams > 1:
            # The largest shards come first; shards of equal size keep their order in this epoch.
            by_size = tf.argsort(-tf.gather(self._records, order), stable=True)
            place = tf.argsort(by_size)
            # The streams take turns in getting the largest shards.
            owner = (deal(place, self._streams) + tf.cast(epoch, tf.int32)) % self._streams
            own = tf.where(owner == tf.cast(stream, tf.int32))[:, 0]
            order, repetition = tf.gather(order, own), tf.gather(repetition, own)
        return order, repetition

    def _key(self, epoch: tf.Tensor | int) -> tf.Tensor:
        return hashing.fold(tf.constant(self._config.seed, tf.int64), epoch)

    def _cycle_length(self) -> int:
        parallel = max(_LEAST_CYCLE, _CYCLE_LENGTH // self._streams)
        return min(parallel, _CYCLE_LENGTH, self._num_read)

    def _block_length(self) -> int:
        return _BLOCK_LENGTH * self._manifest.row_size

    def _rows(self) -> int:
        """Returns the number of records of a block."""
        size = self._manifest.row_size
        records = self._records_read
        sentences = self._manifest.sentences * records / self._manifest.records
        # Blocks are of equal size: a small last block would mix only a few documents.
        num_blocks = max(1, math.ceil(sentences / self._block_sentences))
        return math.ceil(records / size / num_blocks) * size


def shard_paths(config: DataConfig, manifest: Manifest) -> list[str]:
    """Lists the path of each shard."""
    return [
        join(folder, shard.name)
        for folder, part in parts_of(config.folders(), manifest)
        for shard in part.shards
    ]


class Reader:
    """The examples of a view, block by block: (`block_number`, examples in random order).

    Examples of a view that `keeps_order` stay in the order of the records. All other examples are
    permuted, in validation too: neighbouring pairs of a document share a sentence, and in one batch
    that sentence would be an anchor and find itself among the candidates.
    """

    def __init__(self, plan: Plan, block_sentences: int | None = None, streams: int = 1) -> None:
        """Prepares reading; arguments are those of `Blocks`."""
        source = (plan.config, plan.manifest, plan.repetitions)
        self._blocks = Blocks(*source, block_sentences, streams)
        self._view, self._vocab_size = plan.view, plan.manifest.vocab_size

    def epoch(self, epoch: tf.Tensor | int) -> tf.data.Dataset:
        """Reads all blocks of an epoch (int64 scalar)."""
        return self._examples(epoch, self._blocks.epoch(epoch))

    def rest_of_epoch(self, start: DataPosition) -> tf.data.Dataset:
        """Reads the blocks of the epoch where `start` is, from its block on."""
        if not start.block:
            return self.epoch(start.epoch)
        unread = self._blocks.find_unread(start.epoch, start.block)
        return self._examples(start.epoch, self._blocks.read(start.epoch, unread))

    def from_start(self, start: DataPosition) -> tf.data.Dataset:
        """Reads the blocks of all epochs from `start` on, endlessly."""
        later = tf.data.Dataset.counter(start.next_epoch).flat_map(self.epoch)
        return self.rest_of_epoch(start).concatenate(later) if start.block else later

    def of_streams(self, starts: Sequence[DataPosition]) -> Callable[[tf.Tensor], tf.data.Dataset]:
        """Returns a function from a stream's number (int64 scalar) to its blocks, endless.

        One function serves all streams, as a pipeline takes seconds to build.
        """
        unread = [self._blocks.find_unread(s.epoch, s.block, n) for n, s in enumerate(starts)]
        lists = [tf.ragged.stack([rest[i] for rest in unread]) for i in range(3)]
        numbers = [tf.constant([rest[i] for rest in unread], tf.int64) for i in (3, 4)]
        epochs = tf.constant([start.epoch for start in starts], tf.int64)

        def blocks(stream: tf.Tensor) -> tf.data.Dataset:
            epoch = epochs[stream]
            rest = Unread(*(values[stream] for values in (*lists, *numbers)))
            first = self._examples(epoch, self._blocks.read(epoch, rest))
            later = tf.data.Dataset.counter(epoch + 1).flat_map(
                lambda epoch: self._examples(epoch, self._blocks.epoch(epoch, stream))
            )
            return first.concatenate(later)

        return blocks

    def _examples(self, epoch: tf.Tensor | int, blocks: tf.data.Dataset) -> tf.data.Dataset:
        view = self._view

        def make_examples(number: tf.Tensor, serialized: tf.Tensor, keys: tf.Tensor) -> tuple:
            sizes = (self._vocab_size, view.vector_size)
            block = parse_block(view.kind, serialized, keys, view.reads_text, *sizes)
            examples = view(block)
            number = data_position.block_number(epoch, number)
            if view.keeps_order:
                return number, examples
            order = hashing.permutation(examples["key"], hashing.SALT_SHUFFLE)
            return number, {name: tf.gather(value, order) for name, value in examples.items()}

        return blocks.map(make_examples, num_parallel_calls=_PARALLEL_BLOCKS, deterministic=True)


def parse_block(
    kind: str,
    serialized: tf.Tensor,
    keys: tf.Tensor,
    with_text: bool,
    vocab_size: int | None = None,
    vector_size: int = 0,
) -> Block:
    """Parses the records of a block.

    Args:
      kind: kind of the records, `documents` or `pairs`.
      serialized, keys, with_text, vocab_size, vector_size: see `documents.parse`.
    """
    if kind == pairs.KIND:
        return pairs.parse(serialized, keys, vocab_size, vector_size)
    return documents.parse(serialized, keys, with_text, vocab_size, vector_size)


@dataclasses.dataclass
class _Slot:
    """An input that is open: its number, and how many of its elements have been read."""

    number: int
    offset: int


def resume_interleave(
    sizes: Sequence[int], cycle_length: int, block_length: int, skip: int
) -> tuple[list[tuple[int, int]], int]:
    """Computes how to resume a sequential `tf.data.Dataset.interleave` after `skip` elements.

    Take an interleave of the same cycle and block length over the returned inputs, each without its
    first `offset` elements. After `remainder` elements it yields what the whole interleave yields
    after `skip` elements. The work grows with the number of exhausted inputs, not with `skip`.

    Args:
      sizes: elements of each input, in the order in which inputs are opened.
      cycle_length, block_length: the interleave's arguments.
      skip: at most the sum of `sizes`.

    Returns:
      [(number of the input, offset), …] in the order in which to open them, and `remainder`.
    """
    slots: list[_Slot | None] = [None] * cycle_length
    opened = done = at = 0
    while True:
        left = [sizes[slot.number] - slot.offset for slot in slots if slot is not None]
        # Skip whole rounds in which every open input yields a full block.
        settled = opened == len(sizes) or len(left) == cycle_length
        rounds = min(left, default=0) // block_length if settled else 0
        rounds = min(rounds, (skip - done) // (block_length * max(1, len(left))))
        for slot in slots:
            if slot is not None:
                slot.offset += rounds * block_length
        done += rounds * block_length * len(left)
        # One round is made in single steps, as inputs may end and others be opened.
        for _ in range(cycle_length):
            if slots[at] is None and opened < len(sizes):
                slots[at] = _Slot(opened, 0)
                opened += 1
            slot = slots[at]
            if slot is not None:
                taken = min(block_length, sizes[slot.number] - slot.offset)
                if done + taken > skip or done == skip:
                    return _order(slots, at, opened, len(sizes)), skip - done
                slot.offset += taken
                done += taken
                # An input that ends with a full block is closed on the next visit only.
                if taken < block_length:
                    slots[at] = None
            at = (at + 1) % cycle_length
        if opened == len(sizes) and not any(slots):
            return [], skip - done


def _order(slots: list[_Slot | None], at: int, opened: int, count: int) -> list[tuple[int, int]]:
    """Lists the open inputs in the order of the slots from `at` on, then the unopened inputs."""
    order = []
    for slot in (*slots[at:], *slots[:at]):
        if slot is not None:
            order.append((slot.number, slot.offset))
        elif opened < count:
            order.append((opened, 0))
            opened += 1
    return order + [(number, 0) for number in range(opened, count)]
