"""A training that is killed again and again ends as if it had never been disturbed."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.data_position import epoch_of, read_positions
from tests.conftest import make_documents, write_records


def _train_killed(folder, kills, *records, strategy="one_device"):
    """Prefixes of the last checkpoints: of an undisturbed training, of one that was killed."""
    folders = [str(folder / name) for name in ("undisturbed", "disturbed")]
    first, *second = map(str, records)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.training.killed_training"),
            *(first, *folders, str(kills), "1", strategy, *second),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    killed = int(done.stdout.split()[-2])
    # One that was to be killed may have been faster.
    assert killed >= 0.8 * kills - 1, done.stdout
    return [tf.train.latest_checkpoint(each) for each in folders]


def _assert_equal(prefixes):
    one, other = (tf.train.load_checkpoint(prefix) for prefix in prefixes)
    names = one.get_variable_to_shape_map()
    assert names == other.get_variable_to_shape_map() and len(names) > 50
    for name in names:
        if name not in ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE"):
            np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), name)


@pytest.mark.long
def test_killed_ten_times(records_dir, tmp_path):
    """At random moments, also while a checkpoint is written: every number is equal, bit for bit."""
    _assert_equal(_train_killed(tmp_path, 10, records_dir))


@pytest.mark.long
def test_killed_on_two_devices_with_two_groups(records_dir, tmp_path, vocabulary):
    """Groups with batches of different size pass from one epoch to the next at different steps."""
    second = tmp_path / "second"
    write_records(second, make_documents(50, seed=9), vocabulary)
    prefixes = _train_killed(tmp_path, 4, records_dir, second)
    _assert_equal(prefixes)
    epochs = {name: epoch_of(at) for name, at in read_positions(prefixes[0], _GROUPS).items()}
    assert epochs["cmlm"] >= 1 and epochs["mlm"] > epochs["cmlm"]


@pytest.mark.long
def test_killed_on_jax(records_dir, tmp_path, monkeypatch):
    """The newest weights are on JAX's device until a checkpoint asks for them."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    _assert_equal(_train_killed(tmp_path, 6, records_dir, strategy="pjrt"))


_GROUPS = ("cmlm", "mlm")
