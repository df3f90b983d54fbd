"""Reports a full disk in one line: the folder, the free space and what to do."""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from official_cmlm.checkpoints.integrity import checkpoints_of, remove_leftovers
from official_cmlm.errors import UserError

_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# TensorFlow's errors have no error number, only the system's text.
_TEXT = re.compile("|".join(re.escape(os.strerror(number)) for number in _NUMBERS))
# TensorFlow's errors name the file before that text.
_FILE = re.compile(rf"(\S+); (?:{_TEXT.pattern})")


@contextlib.contextmanager
def report_full_model_dir(model_dir: str) -> Iterator[None]:
    """Turns a write error on a full disk inside the `with` block into a `UserError`.

    Incomplete checkpoint files are removed.

    Raises:
      UserError: names the folder (or the file, if it is elsewhere), the free space and the last
        good checkpoint. All other errors pass unchanged.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        if not _is_full(error):
            raise
        with contextlib.suppress(OSError, tf.errors.OpError):
            remove_leftovers(model_dir)
        raise UserError(_message(model_dir, error)) from None


def _is_full(error: OSError | tf.errors.OpError) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    return _TEXT.search(str(error)) is not None


def _message(model_dir: str, error: OSError | tf.errors.OpError) -> str:
    where, advice = model_dir, "free disk space, or lower trainer.max_to_keep"
    file = _file(error)
    if file is None:
        where, advice = "a file in an unknown folder", "free space on all disks"
    elif Path(model_dir).resolve() not in Path(file).resolve().parents:
        # Such as the folders of non-chief workers, and temporary files.
        where, advice = file, "free disk space there"
    reason = _TEXT.search(str(error))
    free = ""
    with contextlib.suppress(OSError):
        folder = model_dir if where == model_dir else os.path.dirname(file or "")
        free = f", {shutil.disk_usage(folder).free / 2**20:.0f} MiB free"
    return (
        f"{where}: cannot be written ({reason[0] if reason else error}{free}); "
        f"{last_checkpoint(model_dir)}; {advice}, then run the same command to resume"
    )


def _file(error: OSError | tf.errors.OpError) -> str | None:
    """The file that could not be written, if the error names it."""
    if isinstance(error, OSError):
        return os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else None
    found = _FILE.search(str(error))
    return found[1] if found else None


def last_checkpoint(model_dir: str) -> str:
    """Text for messages: the checkpoint that a training would resume from."""
    known = checkpoints_of(model_dir)
    return f"the last good checkpoint is {known[0]}" if known else "there is no checkpoint yet"
