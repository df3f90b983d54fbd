"""Finds the damaged shard behind a reading error that names none."""

import hashlib
import os
from collections.abc import Sequence

import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.records.manifest import load_manifest


def find_damage(folders: Sequence[str]) -> UserError | None:
    """Reads the shards one by one up to the damage, and compares their checksums.

    Args:
      folders: folders of records, any of which may hold the damage.

    Returns:
      An error that names the shard and how many of its records could be read, or None if every
      shard is as it was written.
    """
    for folder in folders:
        for shard in load_manifest(folder).shards:
            path = os.path.join(folder, shard.name)
            again = "fetch or make this folder of records again"
            read = 0
            try:
                for _ in tf.data.TFRecordDataset(path):
                    read += 1
            except tf.errors.DataLossError:
                return UserError(
                    f"{path}: damaged after {read} of {shard.records} records; {again}"
                )
            with open(path, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                    return UserError(f"{path}: not the file that was written; {again}")
    return None
