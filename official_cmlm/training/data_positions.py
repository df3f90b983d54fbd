"""Where training stands in each group's data, kept in the checkpoint beside the weights."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from official_cmlm.inputs.position import SIZE, epoch_of

NAME = "data_positions"


class DataPositions:
    """One position a group; what a step has read is remembered with what it has learned.

    Attributes:
      by_group: group -> its variable.
      variables: what a checkpoint saves: group -> int64 `[SIZE]`, see `inputs.position`.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        """Makes the variables; within the scope of the strategy."""
        self.by_group = {
            group: tf.Variable(
                tf.zeros([SIZE], tf.int64),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                name=f"{NAME}/{group}",
            )
            for group in groups
        }
        # No part of the model: its weights are what is learned.
        self.variables = tf.train.Checkpoint(**self.by_group)

    def take(self, features: dict[str, dict]) -> dict[str, dict]:
        """Notes where a batch ends; returns its features without that."""
        for group, batch in features.items():
            if "position" in batch:
                self.by_group[group].assign(batch["position"])
        return {
            group: {name: value for name, value in batch.items() if name != "position"}
            for group, batch in features.items()
        }

    def epochs(self) -> dict[str, int]:
        """Group -> the epoch of the oldest example that waits for its batch, from 0."""
        return {group: epoch_of(value.numpy()) for group, value in self.by_group.items()}


def read_positions(prefix: str, groups: Iterable[str]) -> dict[str, np.ndarray]:
    """The positions that a checkpoint holds: group -> int64 `[SIZE]`; not of groups it lacks."""
    reader = tf.train.load_checkpoint(prefix)
    found = {}
    for group in groups:
        name = f"{NAME}/{group}/.ATTRIBUTES/VARIABLE_VALUE"
        if reader.has_tensor(name):
            found[group] = reader.get_tensor(name)
    return found
