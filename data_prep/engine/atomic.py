"""Files that are complete or not there, whenever a process is killed."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from official_cmlm.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its name when the block ends without an error.

    Two processes may write the same file at once: the later one wins.
    """
    # Neither another process nor one of the same number on another host has this name.
    aside = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


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
        if error.errno not in _FULL:
            raise
        raise UserError(
            f"{folder}: the disk is full; make room and give the same command again, which goes on"
            " where this one stopped"
        ) from None
