"""Files that are complete or not there, whenever a process is killed."""

import contextlib
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data_prep.sharding import FULL
from official_cmlm.errors import UserError

# At the end of the names of files that are being written.
_ASIDE = ".tmp"


def name_aside(path: Path) -> Path:
    """A name that neither another process has nor one of the same number on another host."""
    return path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_ASIDE}")


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its name when the block ends without an error.

    Two processes may write the same file at once: the later one wins.
    """
    aside = name_aside(path)
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Removes the files in a folder that `written` had begun when its process was killed."""
    for path in folder.glob(f"*{_ASIDE}"):
        path.unlink(missing_ok=True)


def write_array(file: BinaryIO, array: np.ndarray) -> None:
    """Writes a `.npy` file; where the disk is full, the error says so, as NumPy's own does not."""
    # Without a `fileno` NumPy writes through `write`, which keeps the system's error number.
    np.save(types.SimpleNamespace(write=file.write), array, allow_pickle=False)


def synced(path: Path) -> None:
    """Waits until a file that another library has written is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def naming_a_full_disk(folder: Path) -> Iterator[None]:
    """Turns a full disk into a `UserError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UserError(
            f"{folder}: the disk is full; make room and give the same command again, which goes on"
            " where this one stopped"
        ) from None
