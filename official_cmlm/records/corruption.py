"""Finds the damaged shard behind a reading error that names none."""

import os
from collections.abc import Sequence

import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.records.manifest import load_manifest


def explain_data_loss(folders: Sequence[str], error: Exception) -> UserError:
    """Reads the shards one by one up to the damage.

    Args:
      folders: folders of records, any of which may hold the damage.
      error: what TensorFlow said.

    Returns:
      An error that names the shard and how many of its records could be read.
    """
    for folder in folders:
        for shard in load_manifest(folder, "documents").shards:
            path = os.path.join(folder, shard.name)
            read = 0
            try:
                for _ in tf.data.TFRecordDataset(path):
                    read += 1
            except tf.errors.DataLossError:
                return UserError(
                    f"{path}: damaged after {read} of {shard.records} records; fetch or make this "
                    "folder of records again"
                )
    return UserError(f"{', '.join(folders)}: a record could not be read ({str(error)[:200]})")
