"""Putting a finished folder under its final name."""

import shutil
from pathlib import Path


def replace_folder(partial: Path, final: Path) -> None:
    """Renames `partial` to `final`; a folder of that name gives way only then.

    Whatever happens, one of the two is complete under one of the names.
    """
    old = final.with_name(final.name + ".old")
    if final.exists():
        if old.exists():
            shutil.rmtree(old)
        final.rename(old)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)
