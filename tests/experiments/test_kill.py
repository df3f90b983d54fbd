"""A training that is killed again and again ends as if it had never been disturbed."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

KILLS = 10


@pytest.mark.long
def test_killed_ten_times(records_dir, tmp_path):
    """At random moments, also while a checkpoint is written: every number is equal, bit for bit."""
    folders = [str(tmp_path / name) for name in ("undisturbed", "disturbed")]
    command = [sys.executable, "-m", "tests.experiments.killed_training"]
    done = subprocess.run(
        [*command, str(records_dir), *folders, str(KILLS), "1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    killed = int(done.stdout.split()[-2])
    # One that was to be killed may have been faster.
    assert killed >= KILLS - 2, done.stdout
    one, other = (
        tf.train.load_checkpoint(tf.train.latest_checkpoint(folder)) for folder in folders
    )
    names = one.get_variable_to_shape_map()
    assert names == other.get_variable_to_shape_map() and len(names) > 50
    for name in names:
        if name not in ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE"):
            np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), name)
