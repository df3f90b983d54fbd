"""Files of bilingual dictionaries (Glavaš et al. 2019)."""

import dataclasses
import re
from pathlib import Path

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder

HINT = (
    "bli_datasets of github.com/codogogo/xling-eval belongs into DATA_DIR/bli as "
    "<src>-<trg>/<name>.train.<...>.<size>.<src>-<trg>.tsv and <name>.test.<...>, word, tab, word"
)

_FILE = re.compile(r"(?:.+\.)?(train|test)\.(?:.+\.)?([^.]+)\.([^.-]+)-([^.]+)\.tsv")


@dataclasses.dataclass(frozen=True)
class Direction:
    """The dictionaries of one translation direction.

    Attributes:
      name: `<src>-<trg>`.
      folder: contains the files.
      training: size, e.g. `5k` (from the file's name) -> file.
      tests: files whose pairs together are the test set.
      vocabularies: optional files of additional source words and target words.
    """

    name: str
    folder: Path
    training: dict[str, Path]
    tests: list[Path]
    vocabularies: tuple[Path, Path]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of the source and the target."""
        source, _, target = self.name.partition("-")
        return source, target


def discover(folder: Path) -> list[Direction]:
    """Finds all directions below a folder, sorted by name; the first file of each name counts."""
    by_name: dict[str, Direction] = {}
    seen: set[str] = set()
    for path in sorted([*folder.glob("*.tsv"), *folder.glob("*/*.tsv")]):
        match = _FILE.fullmatch(path.name)
        if not match or path.name in seen:
            continue
        seen.add(path.name)
        kind, size, source, target = match.groups()
        vocabularies = (folder / f"{source}.vocab.txt", folder / f"{target}.vocab.txt")
        name = f"{source}-{target}"
        direction = by_name.setdefault(name, Direction(name, path.parent, {}, [], vocabularies))
        if kind == "test":
            direction.tests.append(path)
        else:
            direction.training.setdefault(size, path)
    if not by_name:
        raise UserError(f"{folder}: contains no dictionary; {HINT}")
    return [by_name[name] for name in sorted(by_name)]


def read_words(data: DataFolder, path: Path) -> list[str]:
    """Reads words, one per line; none if the file does not exist."""
    if not path.is_file():
        return []
    return [word for line in data.lines(path, HINT) if (word := line.strip())]
