"""Finds the damaged shard after a read error that does not name it."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence

import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.records.manifest import load_manifest


@contextlib.contextmanager
def report_damaged_shard(folders: Sequence[str]) -> Iterator[None]:
    """Turns a read error inside the `with` block into one that names the damaged shard.

    Args:
      folders: see `find_damage`.

    Raises:
      UserError: if reading fails and a shard is damaged; other errors pass unchanged.
    """
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        damage = find_damage(folders)
        if damage is None:
            raise
        raise damage from error


def find_damage(folders: Sequence[str]) -> UserError | None:
    """Reads the shards one by one up to the damage, and compares their checksums.

    Args:
      folders: folders of records, any of which may hold the damage.

    Returns:
      An error that names the shard and how many of its records could be read; None if all shards
      are undamaged.
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
                    return UserError(f"{path}: its checksum differs from the manifest's; {again}")
    return None
