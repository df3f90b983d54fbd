"""Reads a folder of records into blocks, in an order that only the seed decides."""

import math
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import hashing
from official_cmlm.inputs.mixture import shard_repetitions
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest

# Shards read side by side, and rows taken from each in turn: mixes documents of distant parts of a
# corpus into one block without reading anything twice.
_CYCLE_LENGTH = 16
_BLOCK_LENGTH = 8

Block = documents.DocumentBlock | pairs.PairBlock


def read_blocks(config: DataConfig, manifest: Manifest) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns a function from the epoch number (int64 scalar) to that epoch's blocks.

    A block holds records of at most about `config.shuffle_sentences` sentences, and whole rows of
    translations. Training orders the shards anew each epoch, and reads those of some languages
    several times or not at all as `config.language_exponent` says; validation reads them as they
    are and always as epoch 0.

    Raises:
      UserError: if the folder lacks a language that `config.languages` names, or knows none.
    """
    repetitions = shard_repetitions(config, manifest)
    chosen = [s for s, times in zip(manifest.shards, repetitions) if times > 0]
    counts = np.array([shard.records for shard in manifest.shards], np.int64)
    offsets = tf.constant(np.cumsum(counts) - counts)
    paths = tf.constant([os.path.join(config.input_path, s.name) for s in manifest.shards])
    records = sum(shard.records for shard in chosen)
    sentences = manifest.sentences * records / manifest.records
    # Blocks of equal size: a small last one would mix its few documents among themselves only.
    num_blocks = max(1, math.ceil(sentences / config.shuffle_sentences))
    rows = math.ceil(records / manifest.row_size / num_blocks)

    def read_shard(shard: tf.Tensor, repetition: tf.Tensor) -> tf.data.Dataset:
        stored = tf.data.TFRecordDataset(paths[shard], buffer_size=4 << 20)
        # A record that is read again in an epoch is another one to everything random.
        start = offsets[shard] + tf.cast(repetition, tf.int64) * manifest.records
        return stored.enumerate(start=start)

    def epoch_blocks(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_key = hashing.fold(tf.constant(config.seed, tf.int64), epoch)
        shards = tf.range(len(manifest.shards))
        shard_keys = hashing.fold(epoch_key, shards)
        times = tf.constant(repetitions, tf.float32)
        if config.is_training:
            extra = hashing.uniform(shard_keys, 1, hashing.SALT_REPETITIONS)[:, 0]
            times = tf.floor(times + extra)
        times = tf.cast(tf.math.ceil(times), tf.int32)
        order = tf.repeat(shards, times)
        repetition = tf.ragged.range(times).flat_values
        if config.is_training:
            keys = hashing.fold(epoch_key, order + repetition * len(manifest.shards))
            permutation = hashing.permutation(keys, hashing.SALT_SHARDS)
            order, repetition = tf.gather(order, permutation), tf.gather(repetition, permutation)
        stored = tf.data.Dataset.from_tensor_slices((order, repetition)).interleave(
            read_shard,
            cycle_length=min(_CYCLE_LENGTH, len(chosen)),
            block_length=_BLOCK_LENGTH * manifest.row_size,
            deterministic=True,
        )
        return stored.batch(rows * manifest.row_size).map(
            lambda index, serialized: (serialized, hashing.fold(epoch_key, index))
        )

    return epoch_blocks


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
    """Parses one element of `read_blocks`; `kind` is the manifest's."""
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
    for serialized, keys in read_blocks(config, manifest)(tf.constant(0, tf.int64)).take(1):
        rows = pairs.parse(serialized, keys).rows.numpy()
        rows = rows[: len(rows) // size * size].reshape(-1, size)
        for row in rows[(rows != rows[:, :1]).any(axis=1)]:
            raise UserError(
                f"{config.input_path}: its rows do not align: of each {size} pairs that follow "
                f"each other all must have one row id, got {', '.join(map(str, row))}; make the "
                "records again with data_prep.create_pairs --row_aligned"
            )
