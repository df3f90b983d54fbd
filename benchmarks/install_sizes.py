"""Prints what the base install and each extra take on disk, as the table in docs/installing.md.

    python -m benchmarks.install_sizes

A package counts with the files that its RECORD lists, compiled Python among them, in the
environment that runs this program; the project itself counts with the files of this checkout. What
an extra needs is counted on top of the base install.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from official_cmlm import cli

_NAME = "official-cmlm"
_ROOT = Path(__file__).parents[1]
_FILE = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_PROJECT = _FILE["project"]
# Packages that the lock leaves out, whoever requires them.
_LEFT_OUT = {
    override.name
    for override in map(Requirement, _FILE["tool"]["uv"]["override-dependencies"])
    if override.marker and not override.marker.evaluate()
}
_FOLDERS = ("official_cmlm", "data_prep", "experiments", "export")


def find_packages(name: str, extras: Iterable[str] = ()) -> set[str]:
    """Returns a distribution and all that it requires with these extras, by normal names."""
    left, known = [(name, frozenset(extras))], set()
    while left:
        pair = left.pop()
        if pair not in known:
            known.add(pair)
            left += _list_requirements(*pair)
    return {re.sub(r"[-_.]+", "-", name).lower() for name, _ in known}


def _list_requirements(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    if name == _NAME:
        lines = [*_PROJECT["dependencies"]]
        lines += [line for extra in extras for line in _PROJECT["optional-dependencies"][extra]]
    else:
        lines = metadata.requires(name) or []
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        is_meant = marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras))
        if is_meant and requirement.name.lower().replace("_", "-") not in _LEFT_OUT:
            yield requirement.name, frozenset(requirement.extras)


def measure(name: str) -> int:
    """Returns the bytes of a distribution's files."""
    if name == _NAME:
        paths = [path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*")]
    else:
        paths = [Path(file.locate()) for file in metadata.files(name) or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> None:
    """Prints the sizes."""
    base = find_packages(_NAME)
    print(f"{_NAME}: {sum(map(measure, base)) / 1e6:.0f} MB")
    for extra in _PROJECT["optional-dependencies"]:
        try:
            added = find_packages(_NAME, [extra]) - base
            print(f"[{extra}]: + {sum(map(measure, added)) / 1e6:.0f} MB, {len(added)} packages")
        except metadata.PackageNotFoundError as error:
            print(f"[{extra}]: not measured, {error.name} is not installed")


if __name__ == "__main__":
    cli.run(main)
