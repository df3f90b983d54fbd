"""Bilingual dictionaries in files: which there are, and their pairs of words."""

import dataclasses
import re
from pathlib import Path

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport

HINT = (
    "bli_datasets of github.com/codogogo/xling-eval belongs into DATA_DIR/bli as "
    "<src>-<trg>/<name>.train.<...>.<size>.<src>-<trg>.tsv and <name>.test.<...>, word, tab, word"
)

_FILE = re.compile(r"(?:.+\.)?(train|test)\.(?:.+\.)?([^.]+)\.([^.-]+)-([^.]+)\.tsv")


@dataclasses.dataclass(frozen=True)
class Direction:
    """The dictionaries from one language to another.

    Attributes:
      name: `<src>-<trg>`.
      folder: where they lie.
      training: size as the file says it, e.g. `5k` -> file.
      tests: files; their pairs belong together.
      vocabularies: files of more source and of more target words, which need not be there.
    """

    name: str
    folder: Path
    training: dict[str, Path]
    tests: list[Path]
    vocabularies: tuple[Path, Path]


def discover(folder: Path) -> list[Direction]:
    """All directions below a folder, by name; of files of the same name the first counts.

    Raises:
      UserError: if there is no dictionary.
    """
    found: dict[str, Direction] = {}
    seen: set[str] = set()
    for path in sorted([*folder.glob("*.tsv"), *folder.glob("*/*.tsv")]):
        match = _FILE.fullmatch(path.name)
        if not match or path.name in seen:
            continue
        seen.add(path.name)
        kind, size, source, target = match.groups()
        vocabularies = (folder / f"{source}.vocab.txt", folder / f"{target}.vocab.txt")
        name = f"{source}-{target}"
        direction = found.setdefault(name, Direction(name, path.parent, {}, [], vocabularies))
        if kind == "test":
            direction.tests.append(path)
        else:
            direction.training.setdefault(size, path)
    if not found:
        raise UserError(f"{folder}: no dictionary in it; {HINT}")
    return [found[name] for name in sorted(found)]


def read_pairs(data: DataFolder, path: Path, report: SuiteReport) -> list[tuple[str, str]]:
    """Pairs of words; lines that are not two words with a tab between are skipped and noted.

    Raises:
      UserError: if no line is a pair.
    """
    lines = data.lines(path, HINT)
    rows = [tuple(word.strip() for word in line.split("\t")) for line in lines]
    pairs = [row for row in rows if len(row) == 2 and all(row)]
    if not pairs:
        raise UserError(f"{path}: no line is word, tab, word; {HINT}")
    if len(pairs) < len(lines):
        report.notes.append(
            f"{path.name}: {len(lines) - len(pairs)} of {len(lines)} lines skipped: not two words"
        )
    return pairs


def read_words(data: DataFolder, path: Path) -> list[str]:
    """Words, one a line; none if there is no such file."""
    if not path.is_file():
        return []
    return [word for line in data.lines(path, HINT) if (word := line.strip())]
