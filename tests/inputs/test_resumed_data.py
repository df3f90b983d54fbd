"""A pipeline goes on after any batch as if it had never stopped, and reads little to do so."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import data_position
from official_cmlm.inputs.pipeline import Replicas
from official_cmlm.records.manifest import load_manifest
from tests.inputs.pipelines import assert_same_data, blocks_of

# Blocks of few sentences, so that batches wait for examples of many blocks and epochs.
SETTINGS = {"shuffle_sentences": 40, "seed": 3}
BATCHES = 100


@pytest.fixture(scope="module")
def whole(pipeline):
    return pipeline.batches(BATCHES, **SETTINGS)


def _rest(pipeline, batch, count, replicas=Replicas(), **settings):
    dataset = pipeline.build(replicas, batch["position"], **(SETTINGS | settings))
    return list(dataset.take(count).as_numpy_iterator())


@pytest.mark.parametrize(
    "done", [pytest.param(7, marks=pytest.mark.long), pytest.param(47, marks=pytest.mark.long), 88]
)
def test_goes_on_after_any_batch(pipeline, whole, done):
    """Also in later epochs; and the positions themselves lead on."""
    assert_same_data(_rest(pipeline, whole[done - 1], 8), whole[done : done + 8])


@pytest.mark.long
def test_stopped_again_and_again(pipeline, whole):
    """One batch a run."""
    batch, found = whole[40], []
    for _ in range(2):
        (batch,) = _rest(pipeline, batch, 1)
        found.append(batch)
    assert_same_data(found, whole[41:43])


def test_covers_several_epochs_and_waiting_examples(whole):
    """The tests above do not meet the easy case only."""
    epochs = [batch["position"][1] // (1 << 32) for batch in whole]
    assert max(epochs) == 1
    blocks = np.array([batch["position"][1] % (1 << 32) for batch in whole])
    skipped = np.array([batch["position"][2:5] for batch in whole])
    assert (blocks > 0).mean() > 0.3
    assert (skipped > 0).sum(axis=0).min() > 5


@pytest.mark.long
def test_on_two_replicas(pipeline):
    """Both shares of a batch have the position of the whole; the rest follows in turn."""
    shares = pipeline.batches(40, Replicas(2, 0, 2), **SETTINGS)
    for first, second in zip(shares[::2], shares[1::2]):
        np.testing.assert_array_equal(first["position"], second["position"])
    assert_same_data(_rest(pipeline, shares[21], 6, Replicas(2, 0, 2)), shares[22:28])


def test_blocks_from_any_on_without_the_shards_behind(pipeline, tmp_path):
    """Shards that are done with could be empty."""
    folder = shutil.copytree(pipeline.folder, tmp_path / "records")
    config = DataConfig(input_path=str(folder), **SETTINGS)
    blocks = blocks_of(config, load_manifest(folder))
    epoch = tf.constant(2, tf.int64)
    whole = list(blocks.epoch(epoch).as_numpy_iterator())
    done = 0
    for first in (1, len(whole) // 2, len(whole) - 1):
        left = {record for _, records, _ in whole[first:] for record in records}
        for path in folder.glob("*.tfrecord"):
            if not left & set(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
                path.write_bytes(b"")
                done += 1
        rest = list(blocks.rest_of_epoch(2, first).as_numpy_iterator())
        assert [number for number, _, _ in rest] == list(range(first, len(whole)))
        for found, expected in zip(rest, whole[first:], strict=True):
            np.testing.assert_array_equal(found[1], expected[1])
            np.testing.assert_array_equal(found[2], expected[2])
    assert done > 2


def test_validation_has_no_position(pipeline):
    assert "position" not in pipeline.batches(1, is_training=False)[0]


def test_tracker_against_a_plain_loop():
    """Random blocks: the oracle keeps the waiting examples themselves."""
    rng = np.random.default_rng(0)
    sizes = [3, 5, 2]
    tracker = data_position.Tracker(sizes, (), 7)
    state = tracker.initial_state(0)
    waiting = [[] for _ in sizes]
    batched = []  # (block, bucket) of all examples in batches
    for block in range(40):
        bucket = rng.choice(3, size=rng.integers(0, 6), p=[0.6, 0.35, 0.05])
        state, is_new, found = tracker.step(state, tf.constant(block, tf.int64), bucket)
        assert is_new.numpy().all()
        for i, k in enumerate(bucket):
            waiting[k].append((block, k))
            if len(waiting[k]) == sizes[k]:
                batched += waiting[k]
                waiting[k] = []
            oldest = min([b for each in waiting for b, _ in each], default=block)
            skip = [sum(b >= oldest and j == k for b, j in batched) for k in range(3)]
            assert found[i].numpy().tolist() == [7, oldest, *skip]
