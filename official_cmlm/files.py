"""Putting a finished folder under its final name."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def replace_folder(partial: Path, final: Path) -> None:
    """Renames `partial` to `final`; a folder of that name gives way only then.

    Whatever happens, one of the two is complete under one of the names.
    """
    if not final.exists():
        partial.rename(final)
        return
    # A name of its own: a folder that happens to be called `….old` may be somebody's.
    old = Path(tempfile.mkdtemp(prefix=f"{final.name}.old-", dir=final.parent))
    final.rename(old / final.name)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name `final` when the block ends without an error.

    After an error nothing is left of it, and what had the name before is still there.
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
