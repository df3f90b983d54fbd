"""Damage inside a shard of the right size: the shard is named, and how much of it is good."""

import hashlib
import json
import shutil

import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.reader import Reader, parse_block
from official_cmlm.inputs.views import AdjacentPairs, SpecialIds
from official_cmlm.records.corruption import find_damage, report_damaged_shard
from official_cmlm.records.manifest import load_manifest
from official_cmlm.tokenization import load_vocabulary


def _offsets(data: bytes) -> list[int]:
    """Finds where each record of a TFRecord file begins: length, its CRC, data, its CRC."""
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


def _ids(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _record(**changes):
    """Makes a record of two sentences of two tokens, with changes; None leaves a field out."""
    fields = {"token_ids": _ids(5, 6, 7, 8), "sentence_lengths": _ids(2, 2)}
    fields |= {"repeats_last": _ids(0)} | changes
    given = {name: value for name, value in fields.items() if value is not None}
    return tf.train.Example(features=tf.train.Features(feature=given)).SerializeToString()


def _after_space(ids, lengths, replaced):
    return _record(
        after_space_ids=_ids(*ids),
        after_space_lengths=_ids(*lengths),
        after_space_replaced=_ids(*replaced),
    )


NONSENSE = {
    "no record at all": b"\xff\xfe nonsense",
    "a field is missing": _record(sentence_lengths=None, repeats_last=None),
    "an id beyond the vocabulary": _record(token_ids=_ids(5, 6, 7, 10**6)),
    "lengths beyond the ids": _record(sentence_lengths=_ids(2, 200)),
    "a negative length": _record(sentence_lengths=_ids(6, -2)),
    "ids after a space without lengths": _after_space([9], [], []),
    "an id after a space beyond the vocabulary": _after_space([9, 10**6], [1, 1], [1, 1]),
}
MORE_NONSENSE = {
    "nothing": b"",
    "a field of another type": _record(
        token_ids=tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))
    ),
    "an id of more than 32 bits": _record(token_ids=_ids(5, 6, 7, 2**40 + 5)),
    "a negative id": _record(token_ids=_ids(5, 6, 7, -1)),
    "lengths of half the ids": _record(sentence_lengths=_ids(1, 1)),
    "ids after a space of one sentence": _after_space([9], [1], [1]),
    "fewer ids after a space than lengths": _after_space([9], [1, 1], [1, 0]),
    "more ids replaced than there are": _after_space([9, 9], [1, 1], [1, 3]),
    "a negative number of ids replaced": _after_space([9, 9], [1, 1], [1, -1]),
    "a negative number of ids after a space": _after_space([9], [2, -1], [1, 1]),
    "a sentence that is nothing after a space": _after_space([9], [1, 0], [1, 2]),
    "a negative id after a space": _after_space([9, -3], [1, 1], [1, 1]),
}


@pytest.fixture(scope="module")
def parse(records_dir):
    """Parses serialised records in a graph, which is traced once."""
    size = load_manifest(records_dir).vocab_size

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def parse(records):
        keys = tf.zeros(tf.shape(records), tf.int64)
        return parse_block("documents", records, keys, False, size).sentences.flat_values

    return parse


@pytest.mark.parametrize(
    "kind", [*NONSENSE, *(pytest.param(kind, marks=pytest.mark.long) for kind in MORE_NONSENSE)]
)
def test_nonsense_with_valid_checksums(parse, records_dir, tmp_path, kind):
    """It stops the reading, and is named by its number."""
    folder = shutil.copytree(records_dir, tmp_path / "records")
    path = folder / "documents-00001.tfrecord"
    whole = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in [*whole[:3], (NONSENSE | MORE_NONSENSE)[kind], *whole[4:]]:
            writer.write(record)
    values = json.loads((folder / "dataset.json").read_text())
    shard = next(each for each in values["shards"] if each["name"] == path.name)
    shard["bytes"] = path.stat().st_size
    shard["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "dataset.json").write_text(json.dumps(values))
    config = DataConfig(
        input_path=str(folder), is_training=False, seq_length=24, shuffle_sentences=64
    )
    manifest = load_manifest(folder)
    view = AdjacentPairs("sentence", 24, 0.5, SpecialIds.of(load_vocabulary(folder)))
    with pytest.raises(UserError, match=rf"{path}: record 3 is damaged \(.+\); fetch or make"):
        with report_damaged_shard([str(records_dir), str(folder)]):
            # Others are parsed by the same function of the pipeline in a graph.
            if kind == "a negative length":
                for _ in Reader(Plan.of(config, manifest, view)).epoch(0):
                    pass
            for records in tf.data.TFRecordDataset(str(path)).batch(64):
                parse(records)
