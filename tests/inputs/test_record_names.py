"""From the keys of a batch back to the records, and from those to where the text came from."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.reader import parse_block
from official_cmlm.inputs.record_names import RecordName, document_ids, record_names
from official_cmlm.inputs.views import AdjacentPairs, RecordFacts
from official_cmlm.records.manifest import load_manifest
from tests.inputs.pipelines import blocks_of
from tests.training.helpers import data


@pytest.mark.parametrize("key", [0, 1, -1, 12345678901234567, -(2**63), 2**63 - 1])
def test_undoing_a_fold(key):
    """`fold` is undone by its key and by its data, over the whole range of both."""
    numbers = np.array([0, 1, 2, 77, 4095, 2**40])
    folded = hashing.fold(tf.constant(key, tf.int64), tf.constant(numbers)).numpy()
    np.testing.assert_array_equal(hashing.unfolded_data(folded, key), numbers.astype(np.uint64))
    for index, value in enumerate(folded):
        assert hashing.unfolded_keys(int(value), numbers)[index] == key


@pytest.mark.parametrize(("epoch", "reached"), [(0, 0), (1, 3), (9_000, 8_900)])
def test_every_example_has_its_record(records_dir, vocabulary, epoch, reached):
    """The oracle reads the records in order and computes their keys."""
    manifest, config = load_manifest(records_dir), data(records_dir, seed=3)
    view = AdjacentPairs("sentence", 24, 0.5, special=RecordFacts(vocabulary).special)
    keys = []
    for _, serialized, record_keys in blocks_of(config, manifest).epoch(epoch):
        block = parse_block("documents", serialized, record_keys, False)
        keys += view(block)["key"].numpy().tolist()
    names = record_names(np.array(keys), config, manifest, reached)
    expected, start = {}, 0
    epoch_key = hashing.fold(tf.constant(3, tf.int64), epoch)
    for shard in manifest.shards:
        for number in range(shard.records):
            record_key = hashing.fold(epoch_key, start + number)
            for key in hashing.fold(record_key, tf.range(20)).numpy():
                expected[int(key)] = (f"{records_dir}/{shard.name}", number, epoch)
        start += shard.records
    assert len(keys) > 100
    for key, name in zip(keys, names):
        assert (name.path, name.number, name.epoch) == expected[key]


def test_records_that_give_single_examples(records_dir):
    """Views of pairs use the records' own keys."""
    manifest, config = load_manifest(records_dir), data(records_dir)
    epoch_key = hashing.fold(tf.constant(config.seed, tf.int64), 2)
    keys = hashing.fold(epoch_key, tf.constant([0, manifest.shards[0].records])).numpy()
    first, second = record_names(keys, config, manifest, 0)
    assert str(first) == f"{records_dir}/{manifest.shards[0].name}#0" and first.epoch == 2
    assert str(second) == f"{records_dir}/{manifest.shards[1].name}#0"
    stored = next(iter(tf.data.TFRecordDataset(second.path))).numpy()
    wanted = tf.train.Example.FromString(stored).features.feature["id"].bytes_list.value[0]
    assert document_ids([second])[second] == wanted.decode() != ""


def test_where_the_text_came_from(records_dir, monkeypatch):
    """Records of two shards, in any order and twice: each shard is opened once."""
    manifest = load_manifest(records_dir)
    numbers = [(1, 3), (0, 2), (1, 0), (0, 2), (1, manifest.shards[1].records - 1)]
    paths = [f"{records_dir}/{shard.name}" for shard in manifest.shards]
    names = [RecordName(paths[shard], number, 7) for shard, number in numbers]
    expected = {}
    for name in names:
        stored = list(tf.data.TFRecordDataset(name.path).as_numpy_iterator())
        example = tf.train.Example.FromString(stored[name.number])
        expected[name] = example.features.feature["id"].bytes_list.value[0].decode()
    opened, original = [], tf.data.TFRecordDataset
    monkeypatch.setattr(
        tf.data, "TFRecordDataset", lambda path: opened.append(path) or original(path)
    )
    assert document_ids(names) == expected
    assert len(set(expected.values())) == 4 and len(opened) == 2


def test_a_key_of_no_record_ends_the_search(records_dir, monkeypatch):
    """Other records' keys are not taken for these records', and not each searched for."""
    manifest, tried = load_manifest(records_dir), []
    original = hashing.unfolded_data
    monkeypatch.setattr(
        hashing, "unfolded_data", lambda *args: tried.append(args[1].size) or original(*args)
    )
    config = data(records_dir)
    assert record_names(np.arange(50) * 7919 + 42, config, manifest, 5_000) == [None] * 50
    # Few examples, then many, of the epochs near by; the same of those around.
    assert len(tried) == 4 and sum(tried) < 1100
