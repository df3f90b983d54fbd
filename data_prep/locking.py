"""One run at a time on an output folder."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from official_cmlm.errors import UserError


@contextlib.contextmanager
def locked(output: Path) -> Iterator[None]:
    """Holds `<output>.lock`; the system lets go of it however the process ends.

    Raises:
      UserError: another process holds it.
    """
    import fcntl

    path = output.with_name(output.name + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                break
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(
                f"{output}: another run is writing it; wait for it, or name another --output_dir"
            ) from None
        # The one that held it has just removed it.
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
