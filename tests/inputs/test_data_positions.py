"""Data positions: one per group, or one per stream, in a step, on replicas and in checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.data_position import (
    CHECKPOINT_NAME,
    SIZE,
    DataPositions,
    read_positions,
)
from tests.conftest import mirrored_strategy

# Larger than 32 bits, as fingerprints and block numbers are.
REACHED = (1 << 62) + np.arange(4 * SIZE, dtype=np.int64).reshape(4, SIZE)


def _saved(positions, path) -> str:
    return tf.train.Checkpoint(**{CHECKPOINT_NAME: positions.variables}).write(str(path))


def _batch(reached) -> dict:
    return {"mlm": {"key": tf.zeros([2], tf.int64), "position": tf.convert_to_tensor(reached)}}


def test_streams_are_stored_and_read(tmp_path):
    """All of them; the first is the group's own."""
    positions = DataPositions(["mlm"])
    assert "position" not in positions.take(_batch(REACHED))["mlm"]
    np.testing.assert_array_equal(positions.by_group["mlm"].numpy(), REACHED[0])
    found = read_positions(_saved(positions, tmp_path / "one"), ["mlm", "cmlm"])
    assert list(found) == ["mlm"]
    np.testing.assert_array_equal(found["mlm"], REACHED)


@pytest.mark.parametrize("before", [False, True])
def test_a_training_that_goes_on_without_streams(tmp_path, before):
    """Stored streams, none or older ones, do not count then."""
    positions = DataPositions(["mlm"])
    if before:
        positions.take(_batch(REACHED))
    positions.take(_batch(REACHED[2]))
    found = read_positions(_saved(positions, tmp_path / "one"), ["mlm"])
    np.testing.assert_array_equal(found["mlm"], REACHED[2])


def test_replicas_put_their_streams_together():
    """Each knows some; the others are 0 there. All of 64 bits arrive."""
    strategy = mirrored_strategy()
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
