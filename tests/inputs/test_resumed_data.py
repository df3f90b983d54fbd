"""Resuming: where reading goes on, what is read for it, and how a checkpoint stores it."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.data_position import (
    CHECKPOINT_NAME,
    SIZE,
    DataPositions,
    Tracker,
    read_positions,
)
from official_cmlm.inputs.pipeline import Replicas
from official_cmlm.inputs.reader import resume_interleave
from official_cmlm.records.manifest import load_manifest
from tests.conftest import two_replicas
from tests.inputs.pipelines import assert_same_data, blocks_of

# Blocks of few sentences, so that batches wait for examples of many blocks and epochs.
SETTINGS = {"shuffle_sentences": 40, "seed": 3}
BATCHES = 100


@pytest.fixture(scope="module")
def whole(pipeline):
    return pipeline.batches(BATCHES, **SETTINGS)


# An epoch of random batches ends with an incomplete one, unless that is left out.
RANDOM = {"bucket_boundaries": []}
FULL = {"bucket_boundaries": [], "drop_remainder": True}


@pytest.mark.parametrize(
    ("settings", "replicas", "done"),
    [
        ({}, 1, 88),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (({}, 1, 7), ({}, 1, 47), ({}, 2, 22))
        ),
        *(
            pytest.param(settings, 1, done, marks=pytest.mark.long, id=f"{name}-{done}")
            for settings, name, numbers in ((RANDOM, "random", (-2, 0, 1)), (FULL, "full", (0,)))
            for done in numbers
        ),
    ],
)
def test_goes_on_after_any_batch(pipeline, settings, replicas, done):
    """Also in later epochs, on two replicas, and around the end of an epoch of random batches."""
    settings, shares = SETTINGS | settings, Replicas(replicas, 0, replicas)
    if "bucket_boundaries" in settings:
        size = len(pipeline.examples(0, **settings))
        done += size // 8 + (size % 8 > 0 and "drop_remainder" not in settings)
    whole = pipeline.batches(max(BATCHES, done + 8), shares, **settings)
    dataset = pipeline.build(shares, whole[done - 1]["position"], **settings)
    resumed = list(dataset.take(8).as_numpy_iterator())
    assert_same_data(resumed, whole[done : done + 8])
    if replicas > 1:
        for first, second in zip(whole[::2], whole[1::2]):
            np.testing.assert_array_equal(first["position"], second["position"])


def test_covers_several_epochs_and_waiting_examples(whole):
    """The test above does not meet the easy case only."""
    epochs = [batch["position"][1] // (1 << 32) for batch in whole]
    assert max(epochs) == 1
    blocks = np.array([batch["position"][1] % (1 << 32) for batch in whole])
    skipped = np.array([batch["position"][2:5] for batch in whole])
    assert (blocks > 0).mean() > 0.3
    assert (skipped > 0).sum(axis=0).min() > 5


def test_blocks_from_any_number_on(pipeline, tmp_path):
    """Shards that are done with could be empty."""
    folder = shutil.copytree(pipeline.folder, tmp_path / "records")
    config = DataConfig(input_path=str(folder), **SETTINGS)
    blocks = blocks_of(config, load_manifest(folder))
    whole = list(blocks.epoch(2).as_numpy_iterator())
    done = 0
    for first in (1, len(whole) // 2, len(whole) - 1):
        left = {record for _, records, _ in whole[first:] for record in records}
        for path in folder.glob("*.tfrecord"):
            if not left & set(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
                path.write_bytes(b"")
                done += 1
        rest = list(blocks.read(2, blocks.find_unread(2, first)).as_numpy_iterator())
        assert [number for number, _, _ in rest] == list(range(first, len(whole)))
        for block, expected in zip(rest, whole[first:], strict=True):
            np.testing.assert_array_equal(block[1], expected[1])
            np.testing.assert_array_equal(block[2], expected[2])
    assert done > 2


def test_validation_has_no_position(pipeline):
    assert "position" not in pipeline.batches(1, is_training=False)[0]


def test_tracker_against_a_plain_loop():
    """Random blocks: the oracle keeps the waiting examples themselves."""
    rng = np.random.default_rng(0)
    sizes = [3, 5, 2]
    tracker = Tracker(sizes, (), 7)
    state = tracker.initial_state(0)
    waiting = [[] for _ in sizes]
    batched = []  # (block, bucket) of all examples in batches
    for block in range(40):
        bucket = rng.choice(3, size=rng.integers(0, 6), p=[0.6, 0.35, 0.05])
        state, is_new, rows = tracker.step(state, tf.constant(block, tf.int64), bucket)
        assert is_new.numpy().all()
        for i, k in enumerate(bucket):
            waiting[k].append((block, k))
            if len(waiting[k]) == sizes[k]:
                batched += waiting[k]
                waiting[k] = []
            oldest = min([b for each in waiting for b, _ in each], default=block)
            skip = [sum(b >= oldest and j == k for b, j in batched) for k in range(3)]
            assert rows[i].numpy().tolist() == [7, oldest, *skip]


# Larger than 32 bits, as fingerprints and block numbers are.
REACHED = (1 << 62) + np.arange(4 * SIZE, dtype=np.int64).reshape(4, SIZE)


def _save(positions, path) -> str:
    return tf.train.Checkpoint(**{CHECKPOINT_NAME: positions.variables}).write(str(path))


def _batch(reached) -> dict:
    return {"mlm": {"key": tf.zeros([2], tf.int64), "position": tf.convert_to_tensor(reached)}}


def test_streams_are_stored_and_read(tmp_path):
    """All of them; the first is the group's own."""
    positions = DataPositions(["mlm"])
    assert "position" not in positions.take(_batch(REACHED))["mlm"]
    np.testing.assert_array_equal(positions.by_group["mlm"].numpy(), REACHED[0])
    stored = read_positions(_save(positions, tmp_path / "one"), ["mlm", "cmlm"])
    assert list(stored) == ["mlm"]
    np.testing.assert_array_equal(stored["mlm"], REACHED)


@pytest.mark.parametrize("before", [False, True])
def test_a_training_that_goes_on_without_streams(tmp_path, before):
    """Stored streams, none or older ones, do not count then."""
    positions = DataPositions(["mlm"])
    if before:
        positions.take(_batch(REACHED))
    positions.take(_batch(REACHED[2]))
    stored = read_positions(_save(positions, tmp_path / "one"), ["mlm"])
    np.testing.assert_array_equal(stored["mlm"], REACHED[2])


def test_replicas_put_their_streams_together():
    """Each knows some; the others are 0 there. All of 64 bits arrive."""
    strategy = two_replicas()
    with strategy.scope():
        positions = DataPositions(["mlm"])
    own = np.stack([REACHED, REACHED])
    own[0, 2:], own[1, :2] = 0, 0

    @tf.function
    def step():
        def take():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            positions.take(_batch(tf.gather(tf.constant(own), number)))

        strategy.run(take)

    step()
    np.testing.assert_array_equal(positions.by_stream["mlm"].numpy()[:4], REACHED)
    np.testing.assert_array_equal(positions.by_group["mlm"].numpy(), REACHED[0])


def _interleave(order, sizes, cycle_length, block_length):
    """Lists (input, index) that tf.data yields from inputs that begin at an offset."""

    def read(source, offset):
        size = tf.constant(sizes, tf.int64)[source]
        return tf.data.Dataset.range(offset, size).map(lambda index: (source, index))

    sources, offsets = (np.array(column, np.int64) for column in zip(*order))
    dataset = tf.data.Dataset.from_tensor_slices((sources, offsets)).interleave(
        read, cycle_length=cycle_length, block_length=block_length, deterministic=True
    )
    return [(int(source), int(index)) for source, index in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("sizes", "cycle_length", "block_length"),
    [
        ([5], 1, 2),
        pytest.param([8, 8, 8, 8], 2, 4, marks=pytest.mark.long),
        pytest.param([3, 17, 9, 1, 30, 2, 8], 3, 4, marks=pytest.mark.long),
        pytest.param([1, 1, 1, 12, 1, 1], 4, 3, marks=pytest.mark.long),
        pytest.param([40, 3, 3, 3, 3, 3], 5, 2, marks=pytest.mark.long),
        ([7, 0, 5, 0, 0, 9, 4], 2, 3),
        ([2, 3], 16, 8),
    ],
)
def test_goes_on_as_tf_data_would(sizes, cycle_length, block_length):
    whole = _interleave([(i, 0) for i in range(len(sizes))], sizes, cycle_length, block_length)
    assert len(whole) == sum(sizes)
    for skip in range(sum(sizes) + 1):
        order, remainder = resume_interleave(sizes, cycle_length, block_length, skip)
        rest = _interleave(order, sizes, cycle_length, block_length) if order else []
        assert rest[remainder:] == whole[skip:], skip
        assert remainder < block_length
