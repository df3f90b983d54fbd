"""Where a training stands in its data, as a few numbers that a checkpoint can hold.

A batch is complete while examples of other lengths still wait for theirs. So a position is the
block in which the oldest waiting example was read, and for each bucket how many examples from that
block on are in batches already. To go on, one reads from that block and leaves out as many. How
much is read twice depends on how long the rarest bucket takes to fill, not on the step.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest

# Numbers of a position; one size for all, so that a checkpoint fits whatever the buckets are.
SIZE = 64
MAX_BUCKETS = SIZE - 2
_EPOCH = 1 << 32

State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Start:
    """Where reading begins.

    Attributes:
      epoch, block: the first block to read.
      skip: of each bucket, how many examples to leave out from there on; empty is none.
    """

    epoch: int = 0
    block: int = 0
    skip: tuple[int, ...] = ()

    @property
    def next_epoch(self) -> int:
        """The first epoch that is read from its beginning."""
        return self.epoch + (self.block > 0)


def fingerprint(
    config: DataConfig, manifest: Manifest, view: View, buckets: Sequence[tuple[int, int]]
) -> int:
    """A hash, 0 or more, of all that decides which examples make which batch."""
    settings = config.as_dict()
    # A folder may move.
    del settings["input_path"]
    fields = {field.name: getattr(view, field.name) for field in dataclasses.fields(view)}
    facts = [
        settings,
        [(shard.name, shard.records, shard.sha256) for shard in manifest.shards],
        list(buckets),
        type(view).__name__,
        {name: str(getattr(value, "hash", value)) for name, value in fields.items()},
    ]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def start_of(position: np.ndarray, mark: int, num_buckets: int) -> Start | None:
    """Reads a position; None if it is empty, or of other data, settings or batches.

    Args:
      position: int64 `[SIZE]`.
      mark: the `fingerprint` of what is to go on.
      num_buckets: of it.
    """
    if position[0] != mark:
        return None
    epoch, block = divmod(int(position[1]), _EPOCH)
    return Start(epoch, block, tuple(int(count) for count in position[2 : 2 + num_buckets]))


def epoch_of(position: np.ndarray) -> int:
    """The epoch of a position, from 0; int64 `[SIZE]`."""
    return int(position[1]) // _EPOCH


def block_number(epoch: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
    """One int64 that grows from block to block over all epochs."""
    return epoch * _EPOCH + block


def padded(position: tf.Tensor) -> tf.Tensor:
    """A position in its size for checkpoints: int64 `[SIZE]`."""
    return tf.pad(position, [[0, SIZE - position.shape[0]]])


class Tracker:
    """Follows examples into their buckets, block by block: what `tf.data.Dataset.scan` carries.

    The state is, for each bucket: how many examples were read since the start; the block of the
    first one that waits; and how many of every bucket had been read when that block began.
    """

    def __init__(self, batch_sizes: Sequence[int], start: Start, mark: int) -> None:
        """Args: `batch_sizes` of the buckets; where reading begins; see `fingerprint`."""
        self._sizes = np.array(batch_sizes, np.int64)
        self._skip = np.array(start.skip or [0] * len(batch_sizes), np.int64)
        self._mark = mark
        self._first = start.epoch * _EPOCH + start.block

    def initial_state(self) -> State:
        """Before the first block: int64 `[buckets]`, `[buckets]`, `[buckets, buckets]`."""
        count = len(self._sizes)
        first = tf.fill([count], tf.constant(self._first, tf.int64))
        return tf.zeros([count], tf.int64), first, tf.zeros([count, count], tf.int64)

    def step(
        self, state: State, block: tf.Tensor, bucket: tf.Tensor
    ) -> tuple[State, tf.Tensor, tf.Tensor]:
        """Follows one block.

        Args:
          state: after the block before.
          block: its `block_number`.
          bucket: int64 `[examples]`, which bucket each goes to.

        Returns:
          The state; bool `[examples]`, false for those in batches already; int64
          `[examples, 2 + buckets]`, the position after each example if a batch ends with it.
        """
        totals, first, before = state
        count = len(self._sizes)
        members = tf.one_hot(bucket, count, dtype=tf.int64)
        # Row i: after i examples of the block.
        read = totals + tf.pad(tf.cumsum(members), [[1, 0], [0, 0]])
        batched = read - tf.maximum(read - self._skip, 0) % self._sizes
        is_old = batched < totals
        firsts = tf.where(is_old, first, block)
        oldest = tf.argmin(firsts, axis=1)
        base = tf.where(
            tf.gather(is_old, oldest, batch_dims=1)[:, tf.newaxis],
            tf.gather(before, oldest),
            totals,
        )
        rows = tf.concat([tf.reduce_min(firsts, axis=1)[:, tf.newaxis], batched - base], axis=1)
        marks = tf.fill([tf.size(bucket), 1], tf.constant(self._mark, tf.int64))
        positions = tf.ensure_shape(tf.concat([marks, rows[1:]], axis=1), [None, 2 + count])
        own = tf.gather(read[1:], bucket, batch_dims=1)
        is_new = own > tf.gather(tf.constant(self._skip), bucket)
        state = read[-1], firsts[-1], tf.where(is_old[-1][:, tf.newaxis], before, totals)
        return state, is_new, positions
