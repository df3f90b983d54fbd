"""Files and folders that appear under their final name only when they are complete."""

import contextlib
import errno
import os
import shutil
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import numpy as np

# Error numbers of a full disk, and of an exhausted quota.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Suffix of files that are being written.
_UNFINISHED = ".tmp"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A binary file to write, renamed to `path` when the block ends without an error.

    Whenever the process is killed, `path` holds either the old or the new content. An error leaves
    no partial file. Two processes may write the same path at once: the later one wins.

    >>> with atomic_write("vocab.txt") as file:   # doctest: +SKIP
    ...     file.write(b"[PAD]\\n")
    """
    path = Path(path)
    unfinished = unfinished_path(path)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def atomic_write_text(path: str | os.PathLike, text: str) -> None:
    """Writes `text` in UTF-8, with the line ends that it has, as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def unfinished_path(path: Path) -> Path:
    """A name beside `path` that no other process uses, on this host or another one."""
    return path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_UNFINISHED}")


def remove_unfinished(folder: Path) -> None:
    """Removes the files that `atomic_write` had begun in a folder when its process was killed."""
    for path in folder.glob(f"*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flushes a file that another library has written to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_array(file: BinaryIO, array: "np.ndarray") -> None:
    """Writes an array in `.npy` form; a full disk raises an OSError with its error number.

    `np.save` into a real file loses that number.
    """
    import numpy as np

    # Without a `fileno` NumPy writes through `write`, which keeps the system's error number.
    np.save(types.SimpleNamespace(write=file.write), array, allow_pickle=False)


@contextlib.contextmanager
def report_full_disk(folder: Path, remedy: str = "make room and start again") -> Iterator[None]:
    """Turns the OSError of a full disk into a `UserError` that names the folder and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise UserError(f"{folder}: the disk is full; {remedy}") from None


def replace_folder(partial: Path, final: Path) -> None:
    """Renames `partial` to `final`; an existing folder of that name is removed after that.

    Whenever the process is killed, one of the two is complete under one of the names.
    """
    if not final.exists():
        partial.rename(final)
        return
    # A unique name: a folder named `….old` could belong to the user.
    old = Path(tempfile.mkdtemp(prefix=f"{final.name}.old-", dir=final.parent))
    final.rename(old / final.name)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """A folder to fill, renamed to `final` when the block ends without an error.

    After an error nothing is left of it, and the old content of `final` is still there.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix=f"{final.name}.partial-", dir=final.parent))
    try:
        partial = root / final.name
        partial.mkdir()
        yield partial
        replace_folder(partial, final)
    finally:
        shutil.rmtree(root, ignore_errors=True)
