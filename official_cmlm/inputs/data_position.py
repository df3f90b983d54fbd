"""The data position: where reading goes on, in a few numbers for a checkpoint.

When a batch is complete, examples of other lengths still wait in their buckets. A data position
therefore consists of the shard block in which the oldest waiting example was read and, for each
bucket, the number of examples from that block on that are in batches already. A resumed training
reads from that block on and leaves out that many examples of each bucket. How much is read twice
depends on how long the rarest bucket takes to fill, not on the step.

A checkpoint stores a data position as int64 `[SIZE]`: the fingerprint, the block's number, a count
per bucket and, of a stream, three more numbers of `DataPosition`. A *block* is what
`reader.Blocks` reads at once.

`Tracker` computes the positions of a training's batches, `DataPositions` stores them in the step,
and `read_positions` reads them from a checkpoint. `plan.Plan.of` decides from them where reading
starts; `reader.Blocks.find_unread` finds the records that are left of that epoch.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import MAX_STREAMS, POSITION_SIZE, DataConfig
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest, MergedManifest

# A fixed size, so that the variable in a checkpoint fits any number of buckets.
SIZE = POSITION_SIZE
# Place of the positions in a checkpoint.
CHECKPOINT_NAME = "data_positions"
_STREAMS = "streams"
_EPOCH = 1 << 32
# Version of how streams are divided, scheduled and filled.
_STREAMS_VERSION = 1

# Fields of views that earlier releases did not have, and the values that give what they read.
_NEWER_FIELDS = {
    "augmentation_rate": 0.15,
    "anchor_beta": (4, 2),
    "positive_beta": (2, 4),
    "min_document_tokens": 0,
}

State = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class DataPosition:
    """Where reading goes on; by default at the beginning.

    Attributes:
      epoch, block: the first block to read.
      skip: for each bucket, how many examples to leave out from that block on; empty: none.
      batched_from: of a stream, the `block_number` of the block from which batches are made again;
        earlier blocks are read for the examples that wait. -1: from the first.
      step: of a stream, the schedule's step of the first of that block's batches.
      done: of a stream, how many of that block's batches are left out.
    """

    epoch: int = 0
    block: int = 0
    skip: tuple[int, ...] = ()
    batched_from: int = -1
    step: int = 0
    done: int = 0

    @property
    def first_block(self) -> int:
        """The `block_number` of the first block to read."""
        return self.epoch * _EPOCH + self.block

    @property
    def next_epoch(self) -> int:
        """The first epoch that is read from its beginning."""
        return self.epoch + (self.block > 0)


def fingerprint(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: Sequence[tuple[int, int]],
    streams: int = 1,
) -> int:
    """Returns a hash of all that decides which examples are in which batch; not negative."""
    settings = config.as_dict()
    # The folders may be moved. For a single folder, the hash is that of earlier releases.
    del settings["input_path"], settings["sources"]
    if isinstance(manifest, MergedManifest):
        weights = [source.weight for source in config.sources]
        sizes = [len(part.shards) for _, part in manifest.parts]
        settings["sources"] = list(zip(sizes, weights, strict=True))
    # The number of streams in use counts, not the setting.
    del settings["streams"]
    if streams > 1:
        # The version changes with the way in which records are divided and batches filled.
        settings["streams"] = [streams, _STREAMS_VERSION]
    fields = {field.name: getattr(view, field.name) for field in dataclasses.fields(view)}
    if config.segment == "packed" and view.pairs_segments:
        # Earlier releases had a setting for records that fit one segment.
        settings["short_documents"] = fields["short_documents"] = "split"
    if not config.bucket_boundaries:
        # Earlier releases padded random batches to `seq_length`, and let them go on in the next
        # epoch.
        settings["batches_end_with_the_epoch"] = True
    for name, earlier in _NEWER_FIELDS.items():
        if fields.get(name) == earlier:
            del fields[name]
    facts = [
        settings,
        [(shard.name, shard.records, shard.sha256) for shard in manifest.shards],
        list(buckets),
        type(view).__name__,
        {name: str(getattr(value, "hash", value)) for name, value in fields.items()},
    ]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def decode(stored: np.ndarray, mark: int, num_buckets: int) -> DataPosition | None:
    """Decodes a stored position; None: it is empty, or of other records, settings or sizes."""
    if stored[0] != mark:
        return None
    epoch, block = divmod(int(stored[1]), _EPOCH)
    skip = tuple(int(count) for count in stored[2 : 2 + num_buckets])
    of_stream = (int(number) for number in stored[2 + num_buckets : 5 + num_buckets])
    return DataPosition(epoch, block, skip, *of_stream)


def end_of_epoch(position: tf.Tensor) -> tf.Tensor:
    """Returns the position at which the next epoch begins: int64, of the shape of `position`."""
    following = (position[1] // _EPOCH + 1) * _EPOCH
    return tf.concat([position[:1], [following], tf.zeros_like(position[2:])], axis=0)


def block_number(epoch: tf.Tensor | int, block: tf.Tensor | int) -> tf.Tensor:
    """Numbers the blocks of all epochs: an int64 that grows from block to block."""
    return epoch * _EPOCH + block


def pad_to_size(position: tf.Tensor) -> tf.Tensor:
    """Pads a position with zeros to the size that checkpoints store: int64 `[SIZE]`."""
    return tf.pad(position, [[0, SIZE - position.shape[0]]])


class Tracker:
    """The computation of the position after each example, block by block, in a dataset's scan.

    The state holds, for each bucket: the number of examples read since the start; the block of the
    oldest waiting example; and the numbers of examples, of every bucket, that had been read when
    that block began.
    """

    def __init__(self, batch_sizes: Sequence[int], skip: Sequence[int], mark: int) -> None:
        """Sets up the counts."""
        self._sizes = np.array(batch_sizes, np.int64)
        self._skip = np.array(skip or [0] * len(batch_sizes), np.int64)
        self._mark = mark

    def initial_state(self, first: int | tf.Tensor) -> State:
        """Returns the state before the first block.

        Its shapes are `[buckets]`, `[buckets]` and `[buckets, buckets]`, int64; see `Tracker`.
        """
        count = len(self._sizes)
        first = tf.fill([count], tf.cast(first, tf.int64))
        return tf.zeros([count], tf.int64), first, tf.zeros([count, count], tf.int64)

    def step(
        self, state: State, block: tf.Tensor, bucket: tf.Tensor
    ) -> tuple[State, tf.Tensor, tf.Tensor]:
        """Computes the positions after the examples of one block.

        For example, let two buckets, A and B, have batches of 2 examples, and let reading start at
        block 0 with nothing to leave out:

            block 0, example of A    A waits            position: block 0, leave out A 0, B 0
                     example of B    A and B wait       position: block 0, leave out A 0, B 0
                     example of A    completes A's      position: block 0, leave out A 2, B 0
                                     batch, B waits
            block 1, example of B    completes B's      position: block 1, leave out A 0, B 1
                                     batch
                     example of A    A waits            position: block 1, leave out A 0, B 1

        After the third example, B's example of block 0 is still waiting: a resumed training reads
        block 0 again and leaves out its two examples of A. After the fourth, nothing of block 0
        waits: it reads from block 1 on and leaves out one example of B, the one that completed the
        batch. Only positions at which a batch ends are stored with a batch.

        Args:
          state: the state after the previous block.
          block: the `block_number` of this block.
          bucket: int64 `[examples]`, the bucket of each example.

        Returns:
          The new state; bool `[examples]`, false for examples to leave out because they were in
          batches before the start; int64 `[examples, 2 + buckets]`, the position after each
          example.
        """
        totals, first, before = state
        count = len(self._sizes)
        members = tf.one_hot(bucket, count, dtype=tf.int64)
        # Row i of the following tensors, `[examples + 1, buckets]`, is the state after i examples
        # of the block.
        read = totals + tf.pad(tf.cumsum(members), [[1, 0], [0, 0]])
        batched = read - tf.maximum(read - self._skip, 0) % self._sizes
        # Whether an example of an earlier block waits.
        is_old = batched < totals
        firsts = tf.where(is_old, first, block)
        oldest = tf.argmin(firsts, axis=1)
        # Examples of every bucket that had been read when the oldest waiting example's block began.
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


class DataPositions:
    """One data position per group, updated by the step that reads the batch.

    Attributes:
      by_group: group -> its variable; of several streams, the first one's.
      by_stream: group -> int64 `[MAX_STREAMS, SIZE]`, zeros unless it has several streams.
      variables: what a checkpoint saves: group -> int64 `[SIZE]`, and
        `streams`, a checkpoint of `by_stream`.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        """Creates the variables; call it within the scope of the distribution strategy."""

        def variable(name: str, *shape: int) -> tf.Variable:
            return tf.Variable(
                tf.zeros(shape, tf.int64),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                name=f"{CHECKPOINT_NAME}/{name}",
            )

        groups = list(groups)
        self.by_group = {group: variable(group, SIZE) for group in groups}
        self.by_stream = {
            group: variable(f"{_STREAMS}/{group}", MAX_STREAMS, SIZE) for group in groups
        }
        # This is not an attribute of the model, as its variables would count as weights.
        streams = tf.train.Checkpoint(**self.by_stream)
        self.variables = tf.train.Checkpoint(**self.by_group, **{_STREAMS: streams})

    def all(self) -> list[tf.Variable]:
        """Lists all variables."""
        return [*self.by_group.values(), *self.by_stream.values()]

    def take(self, features: dict[str, dict]) -> dict[str, dict]:
        """Stores the data position of each batch; returns the features without it.

        The data position belongs to the batch, not to its examples: it is dropped before anything
        slices the batch.
        """
        for group, batch in features.items():
            reached = batch.get("position")
            if reached is None:
                continue
            if reached.shape.rank > 1:
                # Each host knows how far its own streams are.
                reached = _sum_over_replicas(reached)
                rows = [[0, MAX_STREAMS - reached.shape[0]], [0, 0]]
                self.by_stream[group].assign(tf.pad(reached, rows))
                reached = reached[0]
            self.by_group[group].assign(reached)
        return {
            group: {name: value for name, value in batch.items() if name != "position"}
            for group, batch in features.items()
        }


def _sum_over_replicas(reached: tf.Tensor) -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return reached
    # A tensor from an iterator may have no device, which a worker with one device needs; a result
    # of `bitcast` has one. TPUs cannot sum 64-bit integers; only one replica's numbers differ from
    # 0, so their halves do not overflow.
    halves = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.bitcast(reached, tf.int32))
    return tf.bitcast(halves, tf.int64)


def read_positions(prefix: str, groups: Iterable[str]) -> dict[str, np.ndarray]:
    """Reads the data positions of the groups that a checkpoint has.

    Returns:
      Group -> int64 `[SIZE]`, or `[streams, SIZE]` of several streams.
    """
    reader = tf.train.load_checkpoint(prefix)

    def read(place: str) -> np.ndarray | None:
        name = f"{CHECKPOINT_NAME}/{place}/.ATTRIBUTES/VARIABLE_VALUE"
        return reader.get_tensor(name) if reader.has_tensor(name) else None

    positions = {}
    for group in groups:
        first, streams = read(group), read(f"{_STREAMS}/{group}")
        if first is None:
            continue
        # Without streams the variable holds zeros, or an older training with streams left it.
        used = [] if streams is None else streams[streams[:, 0] != 0]
        in_streams = len(used) > 1 and np.array_equal(used[0], first)
        positions[group] = used if in_streams else first
    return positions
