"""The data position of each group of objectives, saved in the checkpoint beside the weights."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import MAX_STREAMS
from official_cmlm.inputs.data_position import SIZE, epoch_of

NAME = "data_positions"
_STREAMS = "streams"


class DataPositions:
    """One data position per group, updated by the step that reads the batch.

    Attributes:
      by_group: group -> its variable; of several streams, the first one's.
      by_stream: group -> int64 `[MAX_STREAMS, SIZE]`, zeros unless it has several streams.
      variables: what a checkpoint saves: group -> int64 `[SIZE]`, see `inputs.data_position`, and
        `streams`, a checkpoint of `by_stream`.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        """Creates the variables; call it within the scope of the distribution strategy."""

        def variable(name: str, *shape: int) -> tf.Variable:
            return tf.Variable(
                tf.zeros(shape, tf.int64),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                name=f"{NAME}/{name}",
            )

        groups = list(groups)
        self.by_group = {group: variable(group, SIZE) for group in groups}
        self.by_stream = {
            group: variable(f"{_STREAMS}/{group}", MAX_STREAMS, SIZE) for group in groups
        }
        # Not an attribute of the model, whose variables would count as weights.
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

    def epochs(self) -> dict[str, int]:
        """Returns the epoch, from 0, of each group's oldest example that is not in a batch yet."""
        return {group: epoch_of(value.numpy()) for group, value in self.by_group.items()}


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
        name = f"{NAME}/{place}/.ATTRIBUTES/VARIABLE_VALUE"
        return reader.get_tensor(name) if reader.has_tensor(name) else None

    found = {}
    for group in groups:
        first, streams = read(group), read(f"{_STREAMS}/{group}")
        if first is None:
            continue
        # Without streams the variable holds zeros, or an older training with streams left it.
        used = [] if streams is None else streams[streams[:, 0] != 0]
        in_streams = len(used) > 1 and np.array_equal(used[0], first)
        found[group] = used if in_streams else first
    return found
