"""Damage inside a shard of the right size: the shard is named, and how much of it is good."""

import shutil

import pytest
import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.records.corruption import find_damage
from official_cmlm.records.manifest import load_manifest


def _offsets(data: bytes) -> list[int]:
    """Where each record of a TFRecord file begins: length, its CRC, data, its CRC."""
    offsets = [0]
    while offsets[-1] < len(data):
        offsets.append(offsets[-1] + 16 + int.from_bytes(data[offsets[-1] :][:8], "little"))
    return offsets


@pytest.mark.parametrize("part", ["length", "length's checksum", "data", "checksum"])
def test_damaged_shard(records_dir, tmp_path, part):
    """Bytes flipped in the middle: reading fails, and the message counts what is before them."""
    folders = [shutil.copytree(records_dir, tmp_path / name) for name in ("good", "bad")]
    path = folders[1] / "documents-00002.tfrecord"
    data = bytearray(path.read_bytes())
    offsets = _offsets(bytes(data))
    record = len(offsets) // 2
    start, stop = offsets[record], offsets[record + 1]
    position = {"length": start, "length's checksum": start + 9, "data": (start + stop) // 2}
    position = position.get(part, stop - 2)
    data[position : position + 2] = bytes(255 - byte for byte in data[position : position + 2])
    path.write_bytes(data)
    shards = load_manifest(folders[1], "documents").shards
    with pytest.raises(tf.errors.DataLossError):
        list(tf.data.TFRecordDataset([str(folders[1] / shard.name) for shard in shards]))
    error = find_damage([str(folder) for folder in folders])
    assert isinstance(error, UserError)
    assert str(error).startswith(f"{path}: damaged after {record} of {len(offsets) - 1} records;")


def test_shards_that_can_be_read(records_dir):
    """There is nothing to report where every shard is as it was written."""
    assert find_damage([str(records_dir)]) is None


def test_another_file_of_the_same_size(records_dir, tmp_path):
    """Records that read well but are not those of the manifest are told by their checksum."""
    shutil.copytree(records_dir, tmp_path / "records")
    path = tmp_path / "records" / "documents-00000.tfrecord"
    first, *others = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in [*others, first]:
            writer.write(record)
    error = find_damage([str(tmp_path / "records")])
    assert str(error).startswith(f"{path}: its checksum differs from the manifest's")
