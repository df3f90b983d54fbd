"""From the key of an example back to the record that it was made from.

`hashing.fold` is a bijection of its key for every data, and of its data for every key. So the
record behind a key is computed, not searched for: undo the fold by the number of the example inside
its record, undo the fold by the record's number, and see whether such a record exists.
"""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import hashing
from official_cmlm.inputs.mixture import shard_repetitions
from official_cmlm.records.manifest import Manifest

# Examples of a record, epochs, that are tried at most.
_MOST_EXAMPLES = 4096
_MOST_EPOCHS = 4096


@dataclasses.dataclass(frozen=True)
class RecordName:
    """A record of a folder.

    Attributes:
      shard: name of its file.
      number: of the record in the file, from 0.
      epoch: in which it was read, from 0.
    """

    shard: str
    number: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.shard}#{self.number}"


def record_names(
    keys: np.ndarray, config: DataConfig, manifest: Manifest
) -> list[RecordName | None]:
    """The record of each example's key; None where no record of the folder fits.

    Args:
      keys: int64 `[examples]`, the feature `key` of a batch.
      config, manifest: that the batch was read with.
    """
    # Read again in an epoch, a record counts on behind the last one.
    most = manifest.records * (1 + int(max(shard_repetitions(config, manifest))))
    found: list[RecordName | None] = []
    epochs = np.zeros(0, np.int64)
    for key in keys:
        place = _place(key, config.seed, epochs, most)
        if place is None:
            # The examples of a batch are near each other: this is done for the first one only.
            place = _place(key, config.seed, np.arange(_MOST_EPOCHS), most)
        if place is not None:
            near = np.arange(max(0, place[0] - 1), place[0] + 2)
            epochs = near if len(epochs) == 0 else np.union1d(epochs, near)
        found.append(None if place is None else _named(*place, manifest))
    return found


def _place(key: int, seed: int, epochs: np.ndarray, most: int) -> tuple[int, int] | None:
    """(epoch, number below `most` of the record) of a key, if one of the epochs has it."""
    if len(epochs) == 0:
        return None
    # Views whose records are single examples use the records' own keys.
    own = np.array([key], np.int64)
    records = np.concatenate([own, hashing.unfolded_keys(key, np.arange(_MOST_EXAMPLES))])
    epoch_keys = hashing.fold(tf.constant(seed, tf.int64), tf.constant(epochs)).numpy()
    for epoch, epoch_key in zip(epochs.tolist(), epoch_keys):
        numbers = hashing.unfolded_data(records, epoch_key)
        good = numbers[numbers < np.uint64(most)]
        if len(good):
            return epoch, int(good[0])
    return None


def _named(epoch: int, number: int, manifest: Manifest) -> RecordName:
    number %= manifest.records
    for shard in manifest.shards:
        if number < shard.records:
            return RecordName(shard.name, number, epoch)
        number -= shard.records
    raise ValueError(f"record {number} is behind the last shard")


def document_id(folder: str, name: RecordName) -> str:
    """Where the text of a record came from, as `data_prep` noted it; empty if it did not."""
    path = os.path.join(folder, name.shard)
    for serialized in tf.data.TFRecordDataset(path).skip(name.number).take(1):
        example = tf.train.Example.FromString(serialized.numpy())
        values = example.features.feature["id"].bytes_list.value
        return values[0].decode(errors="replace") if values else ""
    return ""
