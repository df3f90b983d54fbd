"""Word pairs with human scores: Multi-SimLex, its cross-lingual pairs, SimLex-999.

Multi-SimLex (multisimlex.com) is published as one table of words and one of scores with a column a
language, as a table a language with the scores of every annotator (`ENG.csv`), and, across
languages, as a table a pair (`ENG-FRA.csv`). SimLex-999 has ten columns. Tables with the columns
word1, word2, score, or id, word1, word2, pos, score are read too. Columns are found by their names,
in any case and with or without a space, or by their number where no line names them.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import split_csv
from official_cmlm.evaluation.data.folder import DataFolder, finite
from official_cmlm.evaluation.data.language_codes import pair_name, two_letters
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.scores import MissingData, SuiteReport

HINT = (
    "Multi-SimLex (multisimlex.com) belongs into DATA_DIR/multi_simlex: translation.csv and "
    "scores.csv, or one file a language such as ENG.csv or en.tsv; SimLex-999.txt into "
    "DATA_DIR/simlex"
)
FORMS = (
    "columns named word 1, word 2 and score, average, SimLex999 or annotator 1, 2, …; or, without "
    "such names, word, word, score; id, word, word, pos, score; or SimLex-999's ten"
)

MULTILINGUAL, SIMLEX, CROSS_LINGUAL = "multi_simlex", "simlex", "cross_lingual_simlex"
DATA_SETS = (MULTILINGUAL, SIMLEX, CROSS_LINGUAL)

# Scores of two languages that differ by more make no cross-lingual pair: a fifth of the scale 0-6.
MAX_DIFFERENCE = 1.2

_FOLDERS = {
    MULTILINGUAL: ("multi_simlex", "multisimlex"),
    SIMLEX: ("simlex", "SimLex-999"),
    CROSS_LINGUAL: ("cross_lingual_simlex",),
}
_WORDS, _SCORES = "translation.csv", "scores.csv"
# A .csv file is a language's table only if its name is a language's code, as the folder may hold
# other .csv files.
_LANGUAGE_FILE = re.compile(r"(?:([^-]+)\.tsv|([A-Za-z]{2,3})(?:-simlex)?\.csv)", re.IGNORECASE)
_PAIR_FILE = re.compile(r"(?!.*-simlex)([^-]+)-([^-]+)\.(?:tsv|csv)", re.IGNORECASE)
_SIMLEX_FILE = re.compile(r"simlex-(?!999)(.+)\.txt")
_SIMLEX_999 = "simlex-999.txt"
_SCORE_NAMES = ("score", "simlex999", "average", "mean", "similarity")
# Number of columns without names -> indices of the row's number, both words and the score.
_BY_NUMBER = {3: (None, 0, 1, (2,)), 5: (0, 1, 2, (4,)), 10: (None, 0, 1, (3,))}

Rows = Mapping[str, tuple[str, str, float]]
"""Number of a row -> first word, second word, score."""


@dataclasses.dataclass(frozen=True)
class PairFile:
    """The file that holds the pairs of a language, or of two languages.

    Attributes:
      path: the file; of two tables the one with the words.
      column: plain name of the language's columns in two tables, e.g. `eng`; else "".
    """

    path: Path
    column: str = ""


@dataclasses.dataclass(frozen=True)
class WordPairs:
    """The well-formed rows of a file.

    Attributes:
      rows: (number, first word, second word, score); the number is the file's id, or counts rows.
      skipped: number of other rows: a wrong number of columns, a word missing, no finite score.
    """

    rows: list[tuple[str, str, str, float]]
    skipped: int

    @property
    def scored(self) -> ScoredPairs:
        """All rows."""
        return ScoredPairs.of((row[1:] for row in self.rows), self.skipped)

    @property
    def numbered(self) -> Rows:
        """Rows by number; of rows with equal numbers the last."""
        return {number: (first, second, score) for number, first, second, score in self.rows}


def discover(data: DataFolder, report: SuiteReport) -> dict[str, dict[str, PairFile]]:
    """Finds the files of each data set by language or pair of languages; notes name ignored ones.

    Languages have their two-letter code where there is one, those of SimLex-999 the name in the
    file; a pair has its codes in alphabetical order. Faults of the two tables of Multi-SimLex are
    reported under `multi_simlex`.
    """
    sources_of: dict[str, dict[str, PairFile]] = {name: {} for name in DATA_SETS}

    def add(data_set: str, name: str, file: PairFile) -> None:
        first = sources_of[data_set].setdefault(name, file)
        if first is not file:
            report.notes.append(
                f"{data_set}.{name}: {first.path.name} is read, not {file.path.name}"
            )

    tables: list[Path] = []
    for path in _files(data.root, MULTILINGUAL):
        if match := _LANGUAGE_FILE.fullmatch(path.name):
            add(MULTILINGUAL, two_letters(match[1] or match[2]), PairFile(path))
        elif match := _PAIR_FILE.fullmatch(path.name):
            add(CROSS_LINGUAL, pair_name(match[1], match[2]), PairFile(path))
        elif path.name in (_WORDS, _SCORES):
            tables.append(path.parent)
    for folder in dict.fromkeys(tables):
        with report.task(MULTILINGUAL):
            for column in _columns_of_both(data, folder):
                add(MULTILINGUAL, two_letters(column), PairFile(folder / _WORDS, column))
    for path in _files(data.root, SIMLEX):
        if path.name.casefold() == _SIMLEX_999:
            add(SIMLEX, "english", PairFile(path))
        elif match := _SIMLEX_FILE.fullmatch(path.name):
            add(SIMLEX, match[1], PairFile(path))
    for path in _files(data.root, CROSS_LINGUAL):
        if match := _PAIR_FILE.fullmatch(path.name):
            add(CROSS_LINGUAL, pair_name(match[1], match[2]), PairFile(path))
    if not tables and not any(sources_of.values()):
        raise MissingData(data.root / _FOLDERS[MULTILINGUAL][0], HINT)
    return {name: dict(sorted(sources.items())) for name, sources in sources_of.items()}


def read(data: DataFolder, file: PairFile) -> WordPairs:
    """Reads the pairs of a file."""
    if file.column:
        pairs = _from_two_tables(data, file)
    else:
        header, lines = data.table(file.path, HINT, _is_header)
        pairs = parse_pairs(lines, str(file.path), header)
    if len(pairs.rows) < 2:
        raise UserError(f"{file.path}: {len(pairs.rows)} word pairs with a score; need 2; {HINT}")
    return pairs


def parse_pairs(lines: Sequence[str], source: str, header: str = "") -> WordPairs:
    """Parses word pairs from lines, separated by tabs or else by commas, without their header."""
    cells = [_cells(line) for line in lines if line.strip()]
    names = _cells(header) if header else []
    width = len(names) or Counter(map(len, cells or [[]])).most_common(1)[0][0]
    columns = _columns([_plain(name) for name in names])
    if columns is None and not _has_words(names):
        columns = _BY_NUMBER.get(width)
    if columns is None and not (names or cells):
        return WordPairs([], 0)
    if columns is None:
        what = f"the columns {_list_names(names)}" if names else f"{width} columns without names"
        raise UserError(f"{source}: {what}; known are {FORMS}")
    rows = [_row(row, str(i), width, columns) for i, row in enumerate(cells, 1)]
    good = [row for row in rows if row is not None]
    return WordPairs(good, len(rows) - len(good))


def cross(first: Rows, second: Rows) -> ScoredPairs:
    """Builds cross-lingual pairs of two row-aligned languages, as Multi-SimLex does.

    Vulić et al. (2020), after Camacho-Collados et al. (2015): two translations (a, b) and (c, d) of
    a pair give (a, d) and (b, c) with the mean of both scores, unless the scores differ by more
    than `MAX_DIFFERENCE`. Each pair comes once.
    """
    pairs: dict[tuple[str, str], float] = {}
    for number in first:
        if number not in second:
            continue
        (a, b, score), (c, d, other) = first[number], second[number]
        if abs(score - other) <= MAX_DIFFERENCE + 1e-9:
            for pair in ((a, d), (b, c)):
                pairs.setdefault(pair, (score + other) / 2)
    return ScoredPairs([a for a, _ in pairs], [b for _, b in pairs], np.array([*pairs.values()]))


def cross_all(rows: Mapping[str, Rows]) -> dict[str, ScoredPairs]:
    """Returns pair of languages -> word pairs, for languages with at least two word pairs."""
    crossed_pairs = {
        pair_name(a, b): cross(rows[a], rows[b]) for a, b in itertools.combinations(sorted(rows), 2)
    }
    return {name: pairs for name, pairs in crossed_pairs.items() if len(pairs.gold) >= 2}


def _files(root: Path, data_set: str) -> Iterator[Path]:
    """Yields files of a data set, also one folder down, where archives put them."""
    for folder in (root / name for name in _FOLDERS[data_set]):
        if folder.is_dir():
            yield from sorted(path for path in folder.glob("*") if path.is_file())
            yield from sorted(path for path in folder.glob("*/*") if path.is_file())


def _cells(line: str) -> list[str]:
    """Splits a line into cells: at tabs, else at commas as `csv` does."""
    return line.split("\t") if "\t" in line or "," not in line else split_csv(line)


def _plain(name: str) -> str:
    """Returns a column's name for comparison: `Word 1`, `word_1` and `word1` give the same."""
    return re.sub(r"[\s_\"]+", "", name).casefold()


def _has_words(names: Sequence[str]) -> bool:
    return {"word1", "word2"} <= {_plain(name) for name in names}


def _is_header(line: str) -> bool:
    names = _cells(line)
    # A line of numbers and words may begin with the word "id".
    has_score = _mean(iter(names[-1:])) is not None
    return _has_words(names) or (list(map(_plain, names[:1])) == ["id"] and not has_score)


Columns = tuple[int | None, int, int, tuple[int, ...]]
"""Indices of the row's number, both words and the scores, of which the mean is taken."""


def _columns(names: list[str]) -> Columns | None:
    """Finds columns by plain names; None without words or scores."""
    score = next((names.index(name) for name in _SCORE_NAMES if name in names), None)
    number = names.index("id") if "id" in names else None
    if {"word1", "word2"} <= set(names):
        first, second = names.index("word1"), names.index("word2")
    elif number == 0 and score is not None and score > 2:
        # The columns of a pair's words are named after the languages.
        first, second = 1, 2
    else:
        return None
    annotators = [i for i, name in enumerate(names) if re.fullmatch(r"annotator\d*", name)]
    scores = (score,) if score is not None else tuple(annotators)
    return (number, first, second, scores) if scores else None


def _row(
    cells: Sequence[str], number: str, width: int, columns: Columns
) -> tuple[str, str, str, float] | None:
    place, first, second, scores = columns
    if len(cells) != width:
        return None
    words = cells[first].strip(), cells[second].strip()
    score = _mean(cells[i] for i in scores)
    if not all(words) or score is None:
        return None
    return (cells[place].strip() if place is not None else number, *words, score)


def _mean(cells: Iterator[str]) -> float | None:
    """Returns the mean of the filled cells; None without any, or if one is not finite."""
    values = [finite(cell) for cell in cells if cell.strip()]
    return None if None in values or not values else finite(sum(values) / len(values))


def _columns_of_both(data: DataFolder, folder: Path) -> list[str]:
    """Returns the languages of the two tables, by the plain names of their columns."""
    (words, _), (scores, _) = (_by_id(data, folder / name) for name in (_WORDS, _SCORES))
    languages = [name[:-1] for name in words if name.endswith("1")]
    languages = [name for name in languages if name and f"{name}2" in words]
    if not languages:
        raise UserError(
            f"{folder / _WORDS}: the columns {_list_names(words)} are not 'ENG 1', 'ENG 2', …"
        )
    if lacking := [name for name in languages if name not in scores]:
        raise UserError(
            f"{folder / _SCORES}: no column {lacking[0]!r}; it has {_list_names(scores)}"
        )
    return languages


def _list_names(names: Sequence[str]) -> str:
    return repr(", ".join(names)[:100])


def _from_two_tables(data: DataFolder, file: PairFile) -> WordPairs:
    """Joins a language's pairs in `translation.csv` and `scores.csv` by their ids or rows."""
    path = file.path.with_name(_SCORES)
    (words, pairs), (scores, values) = _by_id(data, file.path), _by_id(data, path)
    if pairs.keys() != values.keys():
        raise UserError(
            f"{file.path} has {len(pairs)} rows, {path} has {len(values)}, and not the same ids; "
            "download both again"
        )
    first, second = (words.index(f"{file.column}{i}") for i in (1, 2))
    score = scores.index(file.column)
    rows = [
        _row([row[first], row[second], values[number][score]], number, 3, _BY_NUMBER[3])
        for number, row in pairs.items()
    ]
    good = [row for row in rows if row is not None]
    return WordPairs(good, len(rows) - len(good))


def _by_id(data: DataFolder, path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the plain names of a table's columns, and its rows by the column ID, else by number.

    Short rows are filled up with empty cells.
    """
    header, lines = data.table(path, HINT, lambda line: True)
    names = [_plain(name) for name in _cells(header)]
    place = names.index("id") if "id" in names else None
    rows = {}
    for number, line in enumerate((line for line in lines if line.strip()), 1):
        cells = _cells(line)
        cells += [""] * (len(names) - len(cells))
        rows[cells[place].strip() if place is not None else str(number)] = cells
    return names, rows
