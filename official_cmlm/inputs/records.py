"""Reads a folder of records into blocks, in an order that only the seed decides."""

import math
import os

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import hashing
from official_cmlm.inputs.interleaving import interleave_from
from official_cmlm.inputs.mixture import shard_repetitions
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest

# Shards read side by side, and rows taken from each in turn: mixes documents of distant parts of a
# corpus into one block without reading anything twice.
_CYCLE_LENGTH = 16
_BLOCK_LENGTH = 8

Block = documents.DocumentBlock | pairs.PairBlock


class Blocks:
    """The blocks of a folder's epochs.

    A block holds records of at most about `config.shuffle_sentences` sentences, and whole rows of
    translations. Training orders the shards anew each epoch, and reads those of some languages
    several times or not at all as `config.language_exponent` says; validation reads them as they
    are and always as epoch 0.

    A block is (number of the block in its epoch, serialised records, their keys): int64 scalar,
    string `[records]`, int64 `[records]`.
    """

    def __init__(self, config: DataConfig, manifest: Manifest) -> None:
        """Chooses the shards.

        Raises:
          UserError: if the folder lacks a language that `config.languages` names, or knows none.
        """
        self._config, self._manifest = config, manifest
        self._repetitions = shard_repetitions(config, manifest)

    def epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """All blocks of an epoch (int64 scalar)."""
        order, repetition = self._order(epoch)
        return self._read(epoch, order, repetition, tf.zeros_like(order, tf.int64))

    def rest_of_epoch(self, epoch: int, first: int) -> tf.data.Dataset:
        """The blocks of an epoch from number `first` on, without reading those before.

        What is passed over inside the shards that are open at that point is skipped record by
        record; the time does not grow with the number of shards behind.
        """
        order, repetition = (each.numpy() for each in self._order(tf.constant(epoch, tf.int64)))
        sizes = [self._manifest.shards[shard].records for shard in order]
        rows = self._rows()
        opened, remainder = interleave_from(
            sizes, self._cycle_length(), self._block_length(), min(first * rows, sum(sizes))
        )
        where = np.array([source for source, _ in opened], np.int64)
        offsets = np.array([offset for _, offset in opened], np.int64)
        key = tf.constant(epoch, tf.int64)
        return self._read(key, order[where], repetition[where], offsets, first, remainder)

    def _order(self, epoch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Shards in the order in which they are opened, and how often each was opened before."""
        epoch_key = self._key(epoch)
        count = len(self._manifest.shards)
        shards = tf.range(count)
        times = tf.constant(self._repetitions, tf.float32)
        if self._config.is_training:
            shard_keys = hashing.fold(epoch_key, shards)
            extra = hashing.uniform(shard_keys, 1, hashing.SALT_REPETITIONS)[:, 0]
            times = tf.floor(times + extra)
        times = tf.cast(tf.math.ceil(times), tf.int32)
        order = tf.repeat(shards, times)
        repetition = tf.ragged.range(times).flat_values
        if self._config.is_training:
            keys = hashing.fold(epoch_key, order + repetition * count)
            permutation = hashing.permutation(keys, hashing.SALT_SHARDS)
            order, repetition = tf.gather(order, permutation), tf.gather(repetition, permutation)
        return order, repetition

    def _read(
        self,
        epoch: tf.Tensor,
        order: tf.Tensor,
        repetition: tf.Tensor,
        offsets: tf.Tensor,
        first: int = 0,
        skip: int = 0,
    ) -> tf.data.Dataset:
        """Blocks from number `first` on: shards from the offsets on, without `skip` records."""
        counts = np.array([shard.records for shard in self._manifest.shards], np.int64)
        starts = tf.constant(np.cumsum(counts) - counts)
        folder = self._config.input_path
        paths = tf.constant([os.path.join(folder, s.name) for s in self._manifest.shards])

        def read_shard(
            shard: tf.Tensor, repetition: tf.Tensor, offset: tf.Tensor
        ) -> tf.data.Dataset:
            stored = tf.data.TFRecordDataset(paths[shard], buffer_size=4 << 20).skip(offset)
            # A record that is read again in an epoch is another one to everything random.
            start = starts[shard] + tf.cast(repetition, tf.int64) * self._manifest.records
            return stored.enumerate(start=start + offset)

        stored = tf.data.Dataset.from_tensor_slices((order, repetition, offsets)).interleave(
            read_shard,
            cycle_length=self._cycle_length(),
            block_length=self._block_length(),
            deterministic=True,
        )
        blocks = stored.skip(skip).batch(self._rows()).enumerate(start=first)
        return blocks.map(
            lambda number, block: (number, block[1], hashing.fold(self._key(epoch), block[0]))
        )

    def _key(self, epoch: tf.Tensor) -> tf.Tensor:
        return hashing.fold(tf.constant(self._config.seed, tf.int64), epoch)

    def _cycle_length(self) -> int:
        return min(_CYCLE_LENGTH, sum(times > 0 for times in self._repetitions))

    def _block_length(self) -> int:
        return _BLOCK_LENGTH * self._manifest.row_size

    def _rows(self) -> int:
        """Records of a block."""
        size = self._manifest.row_size
        pairs_of = zip(self._manifest.shards, self._repetitions)
        records = sum(shard.records for shard, times in pairs_of if times > 0)
        sentences = self._manifest.sentences * records / self._manifest.records
        # Blocks of equal size: a small last one would mix its few documents among themselves only.
        num_blocks = max(1, math.ceil(sentences / self._config.shuffle_sentences))
        return math.ceil(records / size / num_blocks) * size


# Counting stops here: what follows is like what came before.
_MOST_COUNTED = 200_000


def count_short_records(config: DataConfig, manifest: Manifest, min_tokens: int) -> tuple[int, int]:
    """Counts documents records of fewer than `min_tokens` tokens, and those it has read.

    Reads lengths only, of the first 200,000 records at most.
    """
    paths = [os.path.join(config.input_path, shard.name) for shard in manifest.shards]
    batches = tf.data.TFRecordDataset(paths).take(_MOST_COUNTED).batch(4096)
    short = read = 0
    for counts in batches.map(documents.token_counts).as_numpy_iterator():
        short += int((counts < min_tokens).sum())
        read += len(counts)
    return short, read


def parse_block(kind: str, serialized: tf.Tensor, keys: tf.Tensor, with_text: bool) -> Block:
    """Parses the records of a block; `kind` is the manifest's."""
    if kind == pairs.KIND:
        return pairs.parse(serialized, keys)
    return documents.parse(serialized, keys, with_text)


def check_rows(config: DataConfig, manifest: Manifest) -> None:
    """Looks whether the pairs that should be translations of each other have one row id.

    Reads the first block only, in which the shards take turns.

    Raises:
      UserError: naming two row ids that should be one.
    """
    size = manifest.row_size
    if manifest.kind != pairs.KIND or size < 2:
        return
    for _, serialized, keys in Blocks(config, manifest).epoch(tf.constant(0, tf.int64)).take(1):
        rows = pairs.parse(serialized, keys).rows.numpy()
        rows = rows[: len(rows) // size * size].reshape(-1, size)
        for row in rows[(rows != rows[:, :1]).any(axis=1)]:
            raise UserError(
                f"{config.input_path}: its rows do not align: of each {size} pairs that follow "
                f"each other all must have one row id, got {', '.join(map(str, row))}; make the "
                "records again with data_prep.create_pairs --row_aligned"
            )
