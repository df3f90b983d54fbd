"""From the keys of a batch back to the records, and from those to where the text came from."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.record_names import document_id, record_names
from official_cmlm.inputs.records import Blocks, parse_block
from official_cmlm.inputs.views import AdjacentPairs, Source
from official_cmlm.records.manifest import load_manifest
from tests.tasks.helpers import data


@pytest.mark.parametrize("key", [0, 1, -1, 12345678901234567, -(2**63), 2**63 - 1])
def test_undoing_a_fold(key):
    """`fold` is undone by its key and by its data, over the whole range of both."""
    numbers = np.array([0, 1, 2, 77, 4095, 2**40])
    folded = hashing.fold(tf.constant(key, tf.int64), tf.constant(numbers)).numpy()
    np.testing.assert_array_equal(hashing.unfolded_data(folded, key), numbers.astype(np.uint64))
    for index, value in enumerate(folded):
        assert hashing.unfolded_keys(int(value), numbers)[index] == key


@pytest.mark.parametrize("epoch", [0, 1, 40])
def test_every_example_has_its_record(records_dir, vocabulary, epoch):
    """The oracle reads the records in order and folds forwards."""
    manifest, config = load_manifest(records_dir), data(records_dir, seed=3)
    view = AdjacentPairs("sentence", 24, 0.5, special=Source(vocabulary).special)
    keys = []
    for _, serialized, record_keys in Blocks(config, manifest).epoch(tf.constant(epoch, tf.int64)):
        keys += (
            view(parse_block("documents", serialized, record_keys, False))["key"].numpy().tolist()
        )
    names = record_names(np.array(keys), config, manifest)
    expected = {}
    start = 0
    epoch_key = hashing.fold(tf.constant(3, tf.int64), epoch)
    for shard in manifest.shards:
        for number in range(shard.records):
            record_key = hashing.fold(epoch_key, start + number)
            for key in hashing.fold(record_key, tf.range(20)).numpy():
                expected[int(key)] = (shard.name, number, epoch)
        start += shard.records
    assert len(keys) > 100
    for key, name in zip(keys, names):
        assert (name.shard, name.number, name.epoch) == expected[key]


def test_records_that_give_single_examples(records_dir):
    """Views of pairs use the records' own keys."""
    manifest, config = load_manifest(records_dir), data(records_dir)
    epoch_key = hashing.fold(tf.constant(config.seed, tf.int64), 2)
    keys = hashing.fold(epoch_key, tf.constant([0, manifest.shards[0].records])).numpy()
    first, second = record_names(keys, config, manifest)
    assert str(first) == f"{manifest.shards[0].name}#0" and first.epoch == 2
    assert str(second) == f"{manifest.shards[1].name}#0"
    stored = next(iter(tf.data.TFRecordDataset(str(records_dir / second.shard)))).numpy()
    wanted = tf.train.Example.FromString(stored).features.feature["id"].bytes_list.value[0]
    assert document_id(str(records_dir), second) == wanted.decode() != ""


def test_a_key_of_no_record(records_dir):
    """Other records' keys are not taken for these records'."""
    manifest = load_manifest(records_dir)
    assert record_names(np.array([42, -7]), data(records_dir), manifest) == [None, None]
