"""Finds the damaged shard after a read error that does not name it."""

import contextlib
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest, check_files, join, load_manifest

_PARSED_AT_ONCE = 4096
# Bytes that are read at once.
_READ_BYTES = 4 << 20
# The errors of reading a shard that is damaged, missing, or without its last records.
_READ_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
    # TensorFlow quotes a record that it cannot parse, and Python cannot decode the quotation.
    UnicodeDecodeError,
)
# `tf.data.experimental.assert_cardinality` says this in its message.
_OTHER_LENGTH = "expected to contain"


@contextlib.contextmanager
def report_damaged_shard(folders: Sequence[str]) -> Iterator[None]:
    """Turns a read error inside the `with` block into one that names the damaged shard.

    Raises:
      UserError: if reading fails and a shard is damaged; other errors pass unchanged.
    """
    try:
        yield
    except _READ_ERRORS as error:
        damage = find_damage(folders) if _is_of_records(error, folders) else None
        if damage is None:
            raise
        raise damage from error


def _is_of_records(error: Exception, folders: Sequence[str]) -> bool:
    """Returns whether records may have caused an error, so that all of them are read."""
    if isinstance(error, tf.errors.NotFoundError):
        return any(folder in error.message for folder in folders)
    if isinstance(error, tf.errors.FailedPreconditionError):
        return _OTHER_LENGTH in error.message
    return True


def find_damage(folders: Sequence[str]) -> UserError | None:
    """Looks for damage: reads the shards one by one, compares their checksums, parses the records.

    Args:
      folders: folders of records, any of which may hold the damage.

    Returns:
      An error that names the shard and its damage, e.g. how many of its records could be read; None
      if all shards are undamaged.
    """
    print("a record could not be read; looking for the damage", file=sys.stderr, flush=True)
    manifests = {folder: load_manifest(folder, most_checked=0) for folder in folders}
    try:
        for folder, manifest in manifests.items():
            check_files(folder, manifest)
    except UserError as error:
        return error
    again = "fetch or make this folder of records again"
    for folder, manifest in manifests.items():
        for shard in manifest.shards:
            path, read = join(folder, shard.name), 0
            try:
                for _ in tf.data.TFRecordDataset(path):
                    read += 1
            except tf.errors.DataLossError:
                return UserError(
                    f"{path}: damaged after {read} of {shard.records} records; {again}"
                )
            if _checksum(path) != shard.sha256:
                return UserError(f"{path}: its checksum differs from the manifest's; {again}")
    # The records of undamaged shards are parsed last, as it takes longest.
    for folder, manifest in manifests.items():
        for shard in manifest.shards:
            path, start = join(folder, shard.name), 0
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


def _checksum(path: str) -> str:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _fault(records: tf.Tensor, manifest: Manifest) -> str | None:
    """Describes the damage of one of the records, string `[records]`; None without any."""
    keys = tf.zeros(tf.shape(records), tf.int64)
    try:
        if manifest.kind == pairs.KIND:
            pairs.parse(records, keys, manifest.vocab_size, manifest.vector_size)
        else:
            documents.parse(
                records, keys, manifest.keep_text, manifest.vocab_size, manifest.vector_size
            )
    except UnicodeDecodeError:
        return "it cannot be parsed"
    except tf.errors.InvalidArgumentError as error:
        text = error.message
        # TensorFlow's assertions add the values; its parser adds the name of an op.
        first = re.sub(r"Name: <unknown>, |\{\{.*?\}\}|\[Op:\w+\]", "", text).split("\n")[0]
        return " ".join(first.split())[:120].rstrip(". ")
    return None
