"""Finds the damaged shard after a read error that does not name it."""

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest, load_manifest

_PARSED_AT_ONCE = 4096


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
    # TensorFlow quotes a record that it cannot parse, and Python cannot decode the quotation.
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        damage = find_damage(folders)
        if damage is None:
            raise
        raise damage from error


def find_damage(folders: Sequence[str]) -> UserError | None:
    """Reads the shards one by one up to the damage; compares their checksums, reads the records.

    Args:
      folders: folders of records, any of which may hold the damage.

    Returns:
      An error that names the shard and how many of its records could be read; None if all shards
      are undamaged.
    """
    print("a record could not be read; looking for the damage", file=sys.stderr, flush=True)
    manifests = {folder: load_manifest(folder) for folder in folders}
    again = "fetch or make this folder of records again"
    for folder, manifest in manifests.items():
        for shard in manifest.shards:
            path, read = os.path.join(folder, shard.name), 0
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
    # Only then the records of undamaged shards, which takes longer.
    for folder, manifest in manifests.items():
        for shard in manifest.shards:
            path, start = os.path.join(folder, shard.name), 0
            for records in tf.data.TFRecordDataset(path).batch(_PARSED_AT_ONCE):
                if _fault(records, manifest):
                    for number, record in enumerate(records):
                        fault = _fault(record[tf.newaxis], manifest)
                        if fault:
                            return UserError(
                                f"{path}: record {start + number} is damaged ({fault}); {again}"
                            )
                start += len(records)
    return None


def _fault(records: tf.Tensor, manifest: Manifest) -> str | None:
    """What is wrong with one of some records, string `[records]`; None if nothing is."""
    keys = tf.zeros(tf.shape(records), tf.int64)
    try:
        if manifest.kind == pairs.KIND:
            pairs.parse(records, keys, manifest.vocab_size)
        else:
            documents.parse(records, keys, manifest.keep_text, manifest.vocab_size)
    except UnicodeDecodeError:
        return "it cannot be parsed"
    except tf.errors.InvalidArgumentError as error:
        text = error.message
        # TensorFlow's assertions add the values; its parser adds the name of an op.
        first = re.sub(r"Name: <unknown>, |\{\{.*?\}\}|\[Op:\w+\]", "", text).split("\n")[0]
        return " ".join(first.split())[:120].rstrip(". ")
    return None
