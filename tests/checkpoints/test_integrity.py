"""Checkpoints that a disk, a copy or a killed process has damaged."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.checkpoints import integrity
from official_cmlm.checkpoints.weights import non_finite
from official_cmlm.common.errors import UserError


def _save(folder, *numbers):
    """Writes a checkpoint of two variables for each number, by TensorFlow's manager."""
    checkpoint = tf.train.Checkpoint(
        a=tf.Variable(tf.random.stateless_normal([2000], (1, 2))), b=tf.Variable(3.0)
    )
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=5)
    for number in numbers:
        manager.save(checkpoint_number=number)


@pytest.fixture
def folder(tmp_path):
    _save(tmp_path / "model", 2, 4, 6)
    return tmp_path / "model"


def _data(folder, number):
    return folder / f"ckpt-{number}.data-00000-of-00001"


def _truncate(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def _flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "data truncated": lambda f: _truncate(_data(f, 6), 100),
    "data lacks a byte": lambda f: _truncate(_data(f, 6), _data(f, 6).stat().st_size - 1),
    "data empty": lambda f: _truncate(_data(f, 6), 0),
    "data flipped": lambda f: _flip(_data(f, 6), 5000),
    "data missing": lambda f: _data(f, 6).unlink(),
    "index truncated": lambda f: _truncate(f / "ckpt-6.index", 50),
    "index empty": lambda f: _truncate(f / "ckpt-6.index", 0),
    "index flipped": lambda f: _flip(f / "ckpt-6.index", 30),
    "index missing": lambda f: (f / "ckpt-6.index").unlink(),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_named(folder, capsys, kind):
    DAMAGES[kind](folder)
    assert integrity.latest_good_checkpoint(folder) == str(folder / "ckpt-4")
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder / 'ckpt-6'}: damaged (" in line and line.endswith("resuming from ckpt-4")


def test_undamaged_checkpoints_print_nothing(folder, capsys):
    assert integrity.latest_good_checkpoint(folder) == str(folder / "ckpt-6")
    assert integrity.latest_good_checkpoint(folder.parent) is None
    assert integrity.latest_good_checkpoint(folder / "nowhere") is None
    assert capsys.readouterr().err == ""


def test_all_checkpoints_are_damaged(folder):
    for number in (2, 4, 6):
        _truncate(_data(folder, number), 10)
    with pytest.raises(UserError, match="ckpt-6: damaged .*ckpt-4: .*ckpt-2: .*no checkpoint"):
        integrity.latest_good_checkpoint(folder)


_LIST = 'model_checkpoint_path: "ckpt-6"\nall_model_checkpoint_paths: '


@pytest.mark.parametrize(
    "content",
    [None, "", 'model_checkpoint_path: "ckpt-', "\0\1", f"{_LIST}5", f"{_LIST}[", f'{_LIST}"c'],
)
def test_a_list_that_cannot_be_read(folder, content):
    """The files' own numbers decide then, as numbers."""
    _save(folder, 10)
    (folder / "checkpoint").unlink()
    if content is not None:
        (folder / "checkpoint").write_text(content)
    names = [path.rpartition("/")[2] for path in integrity.checkpoints_of(folder)]
    assert names == ["ckpt-10", "ckpt-6", "ckpt-4", "ckpt-2"]


def test_leftovers_of_a_killed_process_are_not_used(folder, tmp_path):
    """A half-written checkpoint, at each point of writing one, with the list still as before."""
    _save(tmp_path / "other", 8)
    (folder / "ckpt-8_temp").mkdir()
    (folder / "ckpt-8_temp" / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"123")
    assert integrity.latest_good_checkpoint(folder) == str(folder / "ckpt-6")
    for name in ("ckpt-8.data-00000-of-00001", "ckpt-8.index"):
        shutil.copy(tmp_path / "other" / name, folder / name)
        assert integrity.latest_good_checkpoint(folder) == str(folder / "ckpt-6")
    remaining = {path.name for path in folder.iterdir() if "ckpt-8" not in path.name}
    for name in ("ckpt-8-mine.index", "my-ckpt-8.index", "best_ckpt-8.index"):
        (folder / name).write_text("")
        remaining.add(name)
    integrity.clean_up(folder, str(folder / "ckpt-6"))
    assert {path.name for path in folder.iterdir()} == remaining


def test_process_killed_at_its_first_checkpoint_leaves_none(tmp_path):
    """Without a list, data without an index belong to no checkpoint."""
    _save(tmp_path / "other", 8)
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(_data(tmp_path / "other", 8), _data(folder, 8))
    (folder / "ckpt-8_temp").mkdir()
    assert integrity.latest_good_checkpoint(folder) is None
    integrity.clean_up(folder, None)
    assert not list(folder.iterdir())
    integrity.clean_up(tmp_path / "nowhere", None)


@pytest.mark.parametrize("content", [None, ""])
def test_list_of_another_folder_removes_nothing(folder, content):
    """Nor where there is none, or where it is empty."""
    names = {path.name for path in folder.glob("ckpt*")}
    (folder / "checkpoint").unlink()
    if content is not None:
        (folder / "checkpoint").write_text(content)
    integrity.remove_leftovers(folder)
    assert {path.name for path in folder.glob("ckpt*")} == names and len(names) == 6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_non_finite_weights_are_damage(tmp_path, dtype, value):
    """A training does not resume from them, and they are named."""
    _save(tmp_path, 1)
    variables = [tf.Variable([1.0, value], dtype=dtype, name="bad"), tf.Variable([1.0])]
    tf.train.Checkpoint(weights=variables).write(str(tmp_path / "ckpt-2"))
    assert integrity.damage(str(tmp_path / "ckpt-2")) == "weights/0 holds non-finite values"
    assert non_finite([*variables, tf.Variable(1)]) == ["bad:0"]
    assert non_finite(variables[1:]) == [] == non_finite([])


def test_large_numbers_are_finite(tmp_path):
    """A finite float64 may exceed the range of float32."""
    tf.train.Checkpoint(large=tf.Variable([1e300], dtype=tf.float64)).write(str(tmp_path / "c"))
    assert integrity.damage(str(tmp_path / "c")) is None


def test_good_checkpoint_becomes_the_latest(folder, tmp_path):
    """For TensorFlow too, wherever the folder is moved, and the manager counts no damaged one."""
    DAMAGES["data truncated"](folder)
    integrity.clean_up(folder, integrity.latest_good_checkpoint(folder))
    assert not list(folder.glob("ckpt-6*"))
    moved = tmp_path / "moved"
    folder.rename(moved)
    assert tf.train.latest_checkpoint(str(moved)) == str(moved / "ckpt-4")
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(), str(moved), max_to_keep=5)
    assert manager.checkpoints == [str(moved / "ckpt-2"), str(moved / "ckpt-4")]
    assert not list(moved.glob("*.partial"))


def test_a_relative_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    DAMAGES["data missing"](folder)
    good = integrity.latest_good_checkpoint("model")
    assert good == "model/ckpt-4"
    integrity.clean_up("model", good)
    assert tf.train.latest_checkpoint("model") == "model/ckpt-4"
    np.testing.assert_equal(tf.train.load_variable("model", "b/.ATTRIBUTES/VARIABLE_VALUE"), 3.0)
