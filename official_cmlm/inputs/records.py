"""Reads a folder of documents records into blocks, in an order that only the seed decides."""

import math
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import hashing
from official_cmlm.records import documents
from official_cmlm.records.manifest import Manifest

# Shards read side by side, and records taken from each in turn: mixes documents of distant parts
# of a corpus into one block without reading anything twice.
_CYCLE_LENGTH = 16
_BLOCK_LENGTH = 8


def read_blocks(config: DataConfig, manifest: Manifest) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns a function from the epoch number (int64 scalar) to that epoch's blocks.

    A block holds records of at most about `config.shuffle_sentences` sentences. Training
    orders the shards anew each epoch; validation reads them as they are and always as epoch 0.
    """
    paths = tf.constant([os.path.join(config.input_path, s.name) for s in manifest.shards])
    counts = np.array([shard.records for shard in manifest.shards], np.int64)
    offsets = tf.constant(np.cumsum(counts) - counts)
    # Blocks of equal size: a small last one would mix its few documents among themselves only.
    num_blocks = max(1, math.ceil(manifest.sentences / config.shuffle_sentences))
    block_size = math.ceil(manifest.records / num_blocks)

    def read_shard(shard: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(paths[shard], buffer_size=4 << 20)
        return records.enumerate(start=offsets[shard])

    def epoch_blocks(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_key = hashing.fold(tf.constant(config.seed, tf.int64), epoch)
        order = tf.range(len(manifest.shards))
        if config.is_training:
            shard_keys = hashing.fold(epoch_key, order)
            order = hashing.permutation(shard_keys, hashing.SALT_SHARDS)
        records = tf.data.Dataset.from_tensor_slices(order).interleave(
            read_shard,
            cycle_length=min(_CYCLE_LENGTH, len(manifest.shards)),
            block_length=_BLOCK_LENGTH,
            deterministic=True,
        )
        return records.batch(block_size).map(
            lambda index, serialized: (serialized, hashing.fold(epoch_key, index))
        )

    return epoch_blocks


def parse_block(serialized: tf.Tensor, keys: tf.Tensor) -> documents.DocumentBlock:
    """Parses one element of `read_blocks`; see `records.documents.parse`."""
    return documents.parse(serialized, keys)
