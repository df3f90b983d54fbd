"""From the key of an example back to the record that it was made from.

`hashing.fold` is a bijection of its key for every data, and of its data for every key. So the
record behind a key is computed, not searched for: undo the fold by the number of the example inside
its record, undo the fold by the record's number, and see whether such a record exists.
"""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import hashing
from official_cmlm.inputs.mixture import shard_repetitions
from official_cmlm.records.manifest import Manifest

# Examples of a record that are looked for: what nearly all have, and at most.
_EXAMPLES = (64, 4096)
# Epochs before and after the one where the data stand. A bucket that takes longer to fill is rare.
_EPOCHS = 256


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
    keys: np.ndarray, config: DataConfig, manifest: Manifest, epoch: int
) -> list[RecordName | None]:
    """The record of each example's key.

    The work is bounded: examples are looked for in the `_EPOCHS` epochs around `epoch`, and at the
    first one that is not there the search ends, because the keys are not of these records then.

    Args:
      keys: int64 `[examples]`, the feature `key` of a batch.
      config, manifest: that the batch was read with.
      epoch: where the data stand, see `tasks.data_positions`.

    Returns:
      A name for each key, None where none was found.
    """
    # Read again in an epoch, a record counts on behind the last one.
    most = manifest.records * (1 + int(max(shard_repetitions(config, manifest))))
    found: list[RecordName | None] = []
    around = np.arange(max(0, epoch - _EPOCHS), epoch + _EPOCHS + 1)
    # The examples of a batch are near each other.
    near = _near(epoch)
    for key in keys:
        place = _place(key, config.seed, near, most)
        if place is None:
            place = _place(key, config.seed, around, most)
            if place is None:
                return found + [None] * (len(keys) - len(found))
            near = np.union1d(near, _near(place[0]))
        found.append(_named(*place, manifest))
    return found


def _near(epoch: int) -> np.ndarray:
    return np.arange(max(0, epoch - 1), epoch + 2)


def _place(key: int, seed: int, epochs: np.ndarray, most: int) -> tuple[int, int] | None:
    """(epoch, number below `most` of the record) of a key, if one of the epochs has it."""
    epoch_keys = hashing.fold(tf.constant(seed, tf.int64), tf.constant(epochs)).numpy()
    for count in _EXAMPLES:
        # Views whose records are single examples use the records' own keys.
        own = np.array([key], np.int64)
        records = np.concatenate([own, hashing.unfolded_keys(key, np.arange(count))])
        numbers = hashing.unfolded_data(records[np.newaxis], epoch_keys[:, np.newaxis])
        rows, columns = np.nonzero(numbers < np.uint64(most))
        if len(rows):
            return int(epochs[rows[0]]), int(numbers[rows[0], columns[0]])
    return None


def _named(epoch: int, number: int, manifest: Manifest) -> RecordName:
    number %= manifest.records
    for shard in manifest.shards:
        if number < shard.records:
            return RecordName(shard.name, number, epoch)
        number -= shard.records
    raise ValueError(f"record {number} is behind the last shard")


def document_ids(folder: str, names: Iterable[RecordName]) -> dict[RecordName, str]:
    """Where the text of records came from, as `data_prep` noted it; empty if it did not.

    Each shard is read once, up to the last record that is named.
    """
    shards: dict[str, dict[int, list[RecordName]]] = defaultdict(lambda: defaultdict(list))
    for name in names:
        shards[name.shard][name.number].append(name)
    found = {}
    for shard, by_number in shards.items():
        wanted = tf.constant(sorted(by_number), tf.int64)
        stored = tf.data.TFRecordDataset(os.path.join(folder, shard)).take(max(by_number) + 1)
        chosen = stored.enumerate().filter(
            lambda number, _, wanted=wanted: tf.reduce_any(number == wanted)
        )
        for number, serialized in chosen.as_numpy_iterator():
            values = tf.train.Example.FromString(serialized).features.feature["id"].bytes_list.value
            source = values[0].decode(errors="replace") if values else ""
            found.update(dict.fromkeys(by_number[int(number)], source))
    return found
