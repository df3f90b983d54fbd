"""Runs of the binaries of data preparation in this process, and what they leave."""

from pathlib import Path
from types import ModuleType

from absl import flags
from absl.testing import flagsaver


def run_binary(binary: ModuleType, *arguments: str, **values: object) -> int | None:
    """Runs a binary with flags by name and further arguments; returns its exit status."""
    given = [f"--{name}={value}" for name, value in values.items()]
    # On the way out flags that were defined inside are removed again.
    with flagsaver.flagsaver():
        binary.define_flags()
        return binary.main(*flags.FLAGS(["prog", *given, *arguments])[1:])


def names_in(folder: Path) -> list[str]:
    """Returns the names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())
