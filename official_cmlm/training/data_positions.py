"""The data position of each group of objectives, saved in the checkpoint beside the weights."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from official_cmlm.inputs.position import SIZE, epoch_of

NAME = "data_positions"


class DataPositions:
    """One data position per group, updated by the step that reads the batch.

    Attributes:
      by_group: group -> its variable.
      variables: what a checkpoint saves: group -> int64 `[SIZE]`, see `inputs.position`.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        """Creates the variables; call it within the scope of the distribution strategy."""
        self.by_group = {
            group: tf.Variable(
                tf.zeros([SIZE], tf.int64),
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                name=f"{NAME}/{group}",
            )
            for group in groups
        }
        # Not an attribute of the model, whose variables would count as weights.
        self.variables = tf.train.Checkpoint(**self.by_group)

    def take(self, features: dict[str, dict]) -> dict[str, dict]:
        """Stores the data position of each batch; returns the features without it.

        The data position belongs to the batch, not to its examples: it is dropped before anything
        slices the batch.
        """
        for group, batch in features.items():
            if "position" in batch:
                self.by_group[group].assign(batch["position"])
        return {
            group: {name: value for name, value in batch.items() if name != "position"}
            for group, batch in features.items()
        }

    def epochs(self) -> dict[str, int]:
        """Group -> epoch, from 0, of the oldest example that is not in a batch yet."""
        return {group: epoch_of(value.numpy()) for group, value in self.by_group.items()}


def read_positions(prefix: str, groups: Iterable[str]) -> dict[str, np.ndarray]:
    """Reads data positions from a checkpoint: group -> int64 `[SIZE]`, of the groups it has."""
    reader = tf.train.load_checkpoint(prefix)
    found = {}
    for group in groups:
        name = f"{NAME}/{group}/.ATTRIBUTES/VARIABLE_VALUE"
        if reader.has_tensor(name):
            found[group] = reader.get_tensor(name)
    return found
