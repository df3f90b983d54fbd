"""Reads folders of records into blocks, in an order that depends on the seed alone.

Resuming inside an epoch needs the state of tf.data's interleave after many records;
`resume_interleave` computes it from the shards' sizes, without reading.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import hashing
from official_cmlm.inputs.mixture import shard_repetitions
from official_cmlm.inputs.views import AdjacentPairs, View
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest, join, parts_of
from official_cmlm.tokenization import Vocabulary

# Shards that are read in parallel, and rows that are taken from each in turn. This mixes documents
# of distant parts of a corpus into one block without reading anything twice.
_CYCLE_LENGTH = 16
# Those of a stream, at least.
_LEAST_CYCLE = 4
_BLOCK_LENGTH = 8
# Bytes of a shard that are read at once. A request to an object store takes about as long as the
# transfer of so many bytes.
_READ_BYTES = 4 << 20

Block = documents.DocumentBlock | pairs.PairBlock


class Rest(NamedTuple):
    """What to read of an epoch, of records that are read in turn; arrays or tensors.

    Attributes:
      order: int32 `[shards]`, numbers of the shards in the order of opening.
      repetition: int32 `[shards]`, how often each was opened before in the epoch.
      offsets: int64 `[shards]`, the first record to read of each.
      first: int64 scalar, number of the first block.
      skip: int64 scalar, records before the first block's.
    """

    order: tf.Tensor | np.ndarray
    repetition: tf.Tensor | np.ndarray
    offsets: tf.Tensor | np.ndarray
    first: tf.Tensor | np.int64
    skip: tf.Tensor | np.int64


class Blocks:
    """The blocks of the epochs of a folder, or of several that are read as one.

    A block holds records of about `config.shuffle_sentences` sentences at most, and only whole rows
    of translations. Training draws a new order of the shards in each epoch, and reads shards of
    some languages and folders several times or not at all, as `config.language_exponent` and the
    weights of `config.sources` say. Validation reads the shards in their order, always as epoch 0.

    No file is opened before its records are needed, and each is opened once for a reading. A shard
    that ends too early raises `tf.errors.FailedPreconditionError`, see `records.corruption`.

    Divided into streams, each shard of an epoch belongs to one of them.

    A block is (number of the block in its epoch, serialised records, their keys): int64 scalar,
    string `[records]`, int64 `[records]`.
    """

    def __init__(self, config: DataConfig, manifest: Manifest) -> None:
        """Chooses the shards.

        Raises:
          UserError: see `shard_repetitions`.
        """
        self._config, self._manifest, self._streams = config, manifest, 1
        repetitions = shard_repetitions(config, manifest)
        self._counts = np.array([shard.records for shard in manifest.shards], np.int64)
        is_read = np.array(repetitions) > 0
        self._num_read, self._records_read = int(is_read.sum()), int(self._counts[is_read].sum())
        # Made once, outside of the graphs of datasets, each of which would hold a copy.
        with tf.init_scope(), tf.device("CPU:0"):
            self._repetitions = tf.constant(repetitions, tf.float32)
            self._records = tf.constant(self._counts)
            self._starts = tf.constant(np.cumsum(self._counts) - self._counts)
            self._paths = tf.constant(shard_paths(config, manifest), tf.string)

    def divided(self, streams: int, shuffle_sentences: int) -> "Blocks":
        """The same records in `streams` parts, in blocks of about so many sentences at most."""
        parts = copy.copy(self)
        parts._streams = streams
        parts._config = self._config.replace(shuffle_sentences=shuffle_sentences)
        return parts

    def epoch(self, epoch: tf.Tensor, stream: tf.Tensor | int = 0) -> tf.data.Dataset:
        """All blocks of an epoch (int64 scalar), or of one stream's part of it."""
        order, repetition = self._order(epoch, stream)
        zero = tf.constant(0, tf.int64)
        return self.read(epoch, Rest(order, repetition, tf.zeros_like(order, tf.int64), zero, zero))

    def rest_of_epoch(self, epoch: int, first: int) -> tf.data.Dataset:
        """The blocks of an epoch from number `first` on; see `rest`."""
        return self.read(tf.constant(epoch, tf.int64), self.rest(epoch, first))

    def rest(self, epoch: int, first: int, stream: int = 0) -> Rest:
        """What to read for the blocks of an epoch from number `first` on, but not the earlier ones.

        Shards that were read to their end are not opened. In the shards that are open at block
        `first`, the earlier records are skipped one by one.
        """
        order, repetition = self._order(tf.constant(epoch, tf.int64), stream)
        order, repetition = order.numpy(), repetition.numpy()
        sizes = self._counts[order].tolist()
        skip = min(first * self._rows(), sum(sizes))
        opened, remainder = resume_interleave(
            sizes, self._cycle_length(), self._block_length(), skip
        )
        index = np.array([number for number, _ in opened], np.int64)
        offsets = np.array([offset for _, offset in opened], np.int64)
        return Rest(order[index], repetition[index], offsets, np.int64(first), np.int64(remainder))

    def _order(self, epoch: tf.Tensor, stream: tf.Tensor | int = 0) -> tuple[tf.Tensor, tf.Tensor]:
        """Shards in the order of opening, and for each the number of its earlier openings."""
        epoch_key = self._key(epoch)
        count = len(self._manifest.shards)
        shards = tf.range(count)
        times = self._repetitions
        if self._config.is_training:
            shard_keys = hashing.fold(epoch_key, shards)
            extra = hashing.uniform(shard_keys, 1, hashing.SALT_REPETITIONS)[:, 0]
            # The sum of a whole number and almost 1 would be rounded up.
            times = tf.where(times == tf.floor(times), times, tf.floor(times + extra))
        times = tf.cast(tf.math.ceil(times), tf.int32)
        order = tf.repeat(shards, times)
        repetition = tf.ragged.range(times).flat_values
        if self._config.is_training:
            keys = hashing.fold(epoch_key, order + repetition * count)
            permutation = hashing.permutation(keys, hashing.SALT_SHARDS)
            order, repetition = tf.gather(order, permutation), tf.gather(repetition, permutation)
        if self._streams > 1:
            # The largest first; the order of equal ones is that of this epoch.
            by_size = tf.argsort(-tf.gather(self._records, order), stable=True)
            place = tf.argsort(by_size)
            # The streams take turns in getting the largest shards.
            dealt_to = (dealt(place, self._streams) + tf.cast(epoch, tf.int32)) % self._streams
            own = tf.where(dealt_to == tf.cast(stream, tf.int32))[:, 0]
            order, repetition = tf.gather(order, own), tf.gather(repetition, own)
        return order, repetition

    def read(self, epoch: tf.Tensor, rest: Rest) -> tf.data.Dataset:
        """The blocks of a part of an epoch (int64 scalar)."""

        def read_shard(
            shard: tf.Tensor, repetition: tf.Tensor, offset: tf.Tensor
        ) -> tf.data.Dataset:
            stored = tf.data.TFRecordDataset(self._paths[shard], buffer_size=_READ_BYTES)
            # A file that was cut between two records ends without an error of its own.
            count = tf.data.experimental.assert_cardinality(self._records[shard] - offset)
            stored = stored.skip(offset).apply(count)
            # A repeated record has another number, and so other random choices.
            start = self._starts[shard] + tf.cast(repetition, tf.int64) * self._manifest.records
            return stored.enumerate(start=start + offset)

        stored = tf.data.Dataset.from_tensor_slices(tuple(rest[:3])).interleave(
            read_shard,
            cycle_length=self._cycle_length(),
            block_length=self._block_length(),
            deterministic=True,
        )
        blocks = stored.skip(rest.skip).batch(self._rows()).enumerate(start=rest.first)
        return blocks.map(
            lambda number, block: (number, block[1], hashing.fold(self._key(epoch), block[0]))
        )

    def _key(self, epoch: tf.Tensor) -> tf.Tensor:
        return hashing.fold(tf.constant(self._config.seed, tf.int64), epoch)

    def _cycle_length(self) -> int:
        parallel = max(_LEAST_CYCLE, _CYCLE_LENGTH // self._streams)
        return min(parallel, _CYCLE_LENGTH, self._num_read)

    def _block_length(self) -> int:
        return _BLOCK_LENGTH * self._manifest.row_size

    def _rows(self) -> int:
        """Records of a block."""
        size = self._manifest.row_size
        records = self._records_read
        sentences = self._manifest.sentences * records / self._manifest.records
        # Blocks are of equal size: a small last block would mix only a few documents.
        num_blocks = max(1, math.ceil(sentences / self._config.shuffle_sentences))
        return math.ceil(records / size / num_blocks) * size


def dealt(place: tf.Tensor | np.ndarray, streams: int) -> tf.Tensor | np.ndarray:
    """Deals shards, sorted by size, to streams: forwards, then backwards, and so on.

    Args:
      place: integers `[shards]`, each shard's place among all.
      streams: how many.
    """
    number, is_back = place % streams, (place // streams) % 2
    return number * (1 - is_back) + (streams - 1 - number) * is_back


def largest_stream(config: DataConfig, manifest: Manifest, streams: int) -> float:
    """Records of the largest stream in an epoch, as expected, relative to the mean of all."""
    times = np.array(shard_repetitions(config, manifest))
    sizes = np.sort(times * [shard.records for shard in manifest.shards])[::-1]
    sums = np.bincount(dealt(np.arange(len(sizes)), streams), sizes, streams)
    return float(sums.max() / max(sums.mean(), 1e-9))


def shard_paths(config: DataConfig, manifest: Manifest) -> list[str]:
    """The path of each shard."""
    return [
        join(folder, shard.name)
        for folder, part in parts_of(config.folders(), manifest)
        for shard in part.shards
    ]


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
        # One round in single steps: inputs may end and others be opened.
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
    """The open inputs in the order of the slots from `at` on, then the unopened inputs."""
    order = []
    for slot in (*slots[at:], *slots[:at]):
        if slot is not None:
            order.append((slot.number, slot.offset))
        elif opened < count:
            order.append((opened, 0))
            opened += 1
    return order + [(number, 0) for number in range(opened, count)]


# Most records that are counted before a training, and of how many shards: a sample of the folder.
_MOST_COUNTED = 200_000
_MOST_SHARDS_COUNTED = 64


def count_short_records(config: DataConfig, manifest: Manifest, min_tokens: int) -> tuple[int, int]:
    """Counts documents records of fewer than `min_tokens` tokens; returns (short, records read).

    Reads only the lengths, of at most 200,000 records of 64 shards, which are spread evenly over
    the folders.
    """
    return _count(config, manifest, lambda batch: documents.token_counts(batch) < min_tokens)


def count_without_pairs(
    config: DataConfig, manifest: Manifest, view: AdjacentPairs
) -> tuple[int, int]:
    """Counts documents records that give no pair; returns (these, records read), as above."""

    def without(batch: tf.Tensor) -> tf.Tensor:
        alone, running, _ = documents.parse_lengths(batch)
        return view.without_pairs(alone, running)

    return _count(config, manifest, without)


def _count(
    config: DataConfig, manifest: Manifest, condition: Callable[[tf.Tensor], tf.Tensor]
) -> tuple[int, int]:
    """(how many of a sample of the records `condition` holds for, records read)."""
    counts = [shard.records for shard in manifest.shards]
    paths = shard_paths(config, manifest)
    chosen = range(len(paths))
    if len(paths) > _MOST_SHARDS_COUNTED:
        chosen = [len(paths) * i // _MOST_SHARDS_COUNTED for i in range(_MOST_SHARDS_COUNTED)]
    # As many of each, but all of the shards that have fewer.
    most = _largest_take([counts[shard] for shard in chosen], _MOST_COUNTED)
    read_from = tf.constant([paths[shard] for shard in chosen], tf.string)
    records = tf.data.Dataset.from_tensor_slices(read_from).flat_map(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES).take(most)
    )
    batches = records.batch(4096)
    found = read = 0
    for holds in batches.map(condition).as_numpy_iterator():
        found += int(holds.sum())
        read += len(holds)
    return found, read


def _largest_take(counts: Sequence[int], total: int) -> int:
    """The largest number such that so many of each count, or all of it, are at most `total`."""
    low, high = 0, max(counts, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        fits = sum(min(count, middle) for count in counts) <= total
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def parse_block(
    kind: str,
    serialized: tf.Tensor,
    keys: tf.Tensor,
    with_text: bool,
    vocab_size: int | None = None,
) -> Block:
    """Parses the records of a block; `kind` is the manifest's, for others see `documents.parse`."""
    if kind == pairs.KIND:
        return pairs.parse(serialized, keys, vocab_size)
    return documents.parse(serialized, keys, with_text, vocab_size)


def check_running_text(
    config: DataConfig, manifest: Manifest, view: View, vocabulary: Vocabulary
) -> None:
    """Checks that a view that joins sentences gets the ids of their running text.

    Raises:
      UserError: if the records lack the ids of sentences behind a space, as those of older
        releases do.
    """
    if view.joins_sentences and vocabulary.space_changes_ids and not manifest.after_space:
        raise UserError(
            f"{config.named_folders}: the records do not hold how ids change behind a space, so "
            f'{type(view).__name__} would join sentences without one ("read.The"); make them again '
            "with this release"
        )


def check_text(config: DataConfig, manifest: Manifest, view: View) -> None:
    """Raises `UserError` with the folder whose records lack the text that a view reads."""
    for folder, part in parts_of(config.folders(), manifest):
        if view.reads_text and not part.keep_text:
            raise UserError(
                f"{folder}: the records hold no text, but {type(view).__name__} reads text; "
                "make them again with --keep_text"
            )


def check_rows(config: DataConfig, manifest: Manifest) -> None:
    """Checks that pairs which should be translations of each other have the same row id.

    Reads only the first block of each folder, which holds records of several shards.

    Raises:
      UserError: names the differing row ids of one row.
    """
    size = manifest.row_size
    if manifest.kind != pairs.KIND or size < 2:
        return
    for folder, part in parts_of(config.folders(), manifest):
        # Each by itself, as the first block need not hold records of each.
        alone = config.replace(input_path=folder, sources=[])
        for _, serialized, keys in Blocks(alone, part).epoch(tf.constant(0, tf.int64)).take(1):
            rows = pairs.parse(serialized, keys).rows.numpy()
            rows = rows[: len(rows) // size * size].reshape(-1, size)
            for row in rows[(rows != rows[:, :1]).any(axis=1)]:
                raise UserError(
                    f"{folder}: its rows do not align: {size} consecutive pairs must have "
                    f"the same row id, got {', '.join(map(str, row))}; make the records again with "
                    "data_prep.create_pairs --row_aligned"
                )
