"""Finds the record from which an example was made, by the example's key.

`hashing.fold(key, data)` is a bijection of `key` for fixed `data`, and of `data` for a fixed `key`.
So the record is computed: invert the fold by the example's index inside its record, invert the fold
by the record's number, and check that a record of that number exists.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import hashing
from official_cmlm.inputs.plan import shard_repetitions
from official_cmlm.inputs.reader import shard_paths
from official_cmlm.records.manifest import Manifest

# How many example indices are tried: first as many as nearly all records have, then the most.
_EXAMPLES = (64, 4096)
# Epochs that are tried before and after the data position's. Few buckets take longer to fill.
_EPOCHS = 256


@dataclasses.dataclass(frozen=True)
class RecordName:
    """A record of a folder.

    Attributes:
      path: its file, in the folder as the settings name it.
      number: number of the record in the file, from 0.
      epoch: epoch in which it was read, from 0.
    """

    path: str
    number: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.path}#{self.number}"


def record_names(
    keys: np.ndarray, config: DataConfig, manifest: Manifest, epoch: int
) -> list[RecordName | None]:
    """Finds the record of each example's key.

    The work is bounded: only the `_EPOCHS` epochs before and after `epoch` are tried. The search
    ends at the first key without a record, because the keys then belong to other records.

    Args:
      keys: int64 `[examples]`, the feature `key` of a batch.
      config, manifest: the settings and the manifest of the training.
      epoch: the epoch of the data position, see `data_position`.

    Returns:
      A name for each key, None where none was found.
    """
    # Repetitions of a record within an epoch are numbered after the last record.
    most = manifest.records * (1 + int(max(shard_repetitions(config, manifest))))
    found: list[RecordName | None] = []
    paths = shard_paths(config, manifest)
    ends = np.cumsum([shard.records for shard in manifest.shards])
    around = np.arange(max(0, epoch - _EPOCHS), epoch + _EPOCHS + 1)
    # The examples of a batch come from few epochs.
    near = _near(epoch)
    for key in keys:
        record = _record(key, config.seed, near, most)
        if record is None:
            record = _record(key, config.seed, around, most)
            if record is None:
                return found + [None] * (len(keys) - len(found))
            near = np.union1d(near, _near(record[0]))
        epoch_read, number = record[0], record[1] % manifest.records
        # Shards without records end where they begin.
        shard = int(np.searchsorted(ends, number, side="right"))
        start = int(ends[shard]) - manifest.shards[shard].records
        found.append(RecordName(paths[shard], number - start, epoch_read))
    return found


def _near(epoch: int) -> np.ndarray:
    return np.arange(max(0, epoch - 1), epoch + 2)


def _record(key: int, seed: int, epochs: np.ndarray, most: int) -> tuple[int, int] | None:
    """Finds (epoch, number of the record) of a key that belongs to one of the epochs."""
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


def document_ids(names: Iterable[RecordName]) -> dict[RecordName, str]:
    """Reads the `id` of each record: the origin of its text, as `data_prep` stored it, or empty.

    Each shard is read once, up to the last of its named records.
    """
    shards: dict[str, dict[int, list[RecordName]]] = defaultdict(lambda: defaultdict(list))
    for name in names:
        shards[name.path][name.number].append(name)
    found = {}
    for path, by_number in shards.items():
        wanted = tf.constant(sorted(by_number), tf.int64)
        stored = tf.data.TFRecordDataset(path).take(max(by_number) + 1)
        chosen = stored.enumerate().filter(
            lambda number, _, wanted=wanted: tf.reduce_any(number == wanted)
        )
        for number, serialized in chosen.as_numpy_iterator():
            values = tf.train.Example.FromString(serialized).features.feature["id"].bytes_list.value
            document_id = values[0].decode(errors="replace") if values else ""
            found.update(dict.fromkeys(by_number[int(number)], document_id))
    return found
