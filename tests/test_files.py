"""Files that appear only when they are complete."""

import errno
import os

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.files import (
    atomic_write,
    atomic_write_text,
    remove_unfinished,
    report_full_disk,
    unfinished_path,
    write_array,
)


def test_old_content_stays_until_the_end(tmp_path):
    """Until the block ends the path holds the old content; then the new one and nothing else."""
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    atomic_write_text(path, "é\r\n")
    assert path.read_bytes() == "é\r\n".encode()
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_nothing_is_left_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "file") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_two_writers_at_once(tmp_path):
    """The later one wins, and neither sees the other's half."""
    path = tmp_path / "file"
    with atomic_write(path) as one, atomic_write(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_remove_unfinished(tmp_path):
    """What a killed process has left goes; other files stay."""
    unfinished_path(tmp_path / "a").write_text("half")
    (tmp_path / "b").write_text("whole")
    remove_unfinished(tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["b"]


def test_write_array(tmp_path):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    with atomic_write(tmp_path / "a.npy") as file:
        write_array(file, array)
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert found.dtype == array.dtype and (found == array).all()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk(tmp_path, number):
    """One line with the folder and what to do; other errors are passed on."""
    with pytest.raises(UserError, match="x: the disk is full; buy one"):
        with report_full_disk(tmp_path / "x", "buy one"):
            raise OSError(number, os.strerror(number))
    with pytest.raises(PermissionError), report_full_disk(tmp_path):
        raise PermissionError(errno.EACCES, "no")
