"""PAWS-X: sentences row-aligned over several languages, without repetitions.

Two forms are published. Google's folders `<language>/{train,translated_train,dev_2k,test_2k}.tsv`
have a header and quotes as they are in the text. XTREME's script makes `<split>-<language>.tsv` of
them, without header and, for the test, without labels; Python's `csv` writes them, which puts
fields with a quote in quotes and doubles those inside.
"""

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData

HINT = (
    "PAWS-X (github.com/google-research-datasets/paws) belongs into DATA_DIR/pawsx as "
    "<lang>/{dev_2k,test_2k}.tsv, or XTREME's copy of it as <split>-<lang>.tsv; or paws_x_wiki, "
    "prepared by TensorFlow Datasets, into DATA_DIR/tfds"
)
FORMS = (
    "a header with sentence1; or no header and sentence1, sentence2, label; or sentence1, sentence2"
)

# PAWS-X's mark of a sentence that was not translated.
_NOT_TRANSLATED = "NS"
_FLAT = re.compile(r"(.+)-([a-z]{2,3}(?:[-_][A-Z][A-Za-z]{1,3})?)\.tsv")
_FOLDER = re.compile(r"[a-z]{2,3}(?:[-_][A-Z][A-Za-z]{1,3})?")
# Names of Google's files -> those of XTREME's splits.
_SPLITS = {"dev_2k": "dev", "test_2k": "test", "translated_train": "train"}
# A quoted field spans at most this many lines; with more, its quotation mark is not closed.
_MOST_LINES = 20

Files = dict[str, Path]
"""Language -> file."""


class Unsuitable(UserError):
    """A split that lacks languages, or a file in no form that PAWS-X is published in."""


def splits(folder: Path) -> list[tuple[str, Files]]:
    """Finds the splits below a folder, by XTREME's names: `test`, `dev`, then others by name.

    Files of both publishers are never mixed: a split that is there twice is listed twice.
    """
    by_split: dict[tuple[int, str], Files] = {}
    for path in sorted(folder.glob("*.tsv")):
        if match := _FLAT.fullmatch(path.name):
            by_split.setdefault((0, match[1]), {})[match[2]] = path
    for layout, root in ((1, folder), (2, folder / "x-final")):
        for path in sorted(root.glob("*/*.tsv")):
            if _FOLDER.fullmatch(path.parent.name):
                split = _SPLITS.get(path.stem, path.stem)
                by_split.setdefault((layout, split), {}).setdefault(path.parent.name, path)
    order = {"test": 0, "dev": 1}
    keys = sorted(by_split, key=lambda key: (order.get(key[1], 2), key[1], key[0]))
    return [(split, by_split[layout, split]) for layout, split in keys]


def split_name(name: str) -> str:
    """Returns XTREME's name of a split, which may be called as in Google's file."""
    return _SPLITS.get(name.removesuffix(".tsv"), name)


def first_sentences(data: DataFolder, path: Path) -> list[str]:
    """Returns the column `sentence1` of a PAWS-X file; "" for rows without a sentence.

    Rows with a wrong number of columns, or with `NS`, have no sentence. A file without a header was
    written by `csv`.
    """
    header, lines = data.table(path, HINT, lambda line: "sentence1" in _names(line))
    if not lines:
        return []
    if header:
        rows = [line.split("\t") for line in lines]
        columns = len(header.split("\t"))
    else:
        columns = Counter(len(line.split("\t")) for line in lines).most_common(1)[0][0]
        rows = list(read_csv_rows(lines, columns))
    column = _column(path, header, columns, rows)
    return [_clean(row[column]) if len(row) == columns else "" for row in rows]


def read_prepared(
    data: DataFolder, split: str, languages: Sequence[str], missing: MissingData
) -> dict[str, list[str]]:
    """Reads the first sentences of tfds's `paws_x_wiki`: language -> sentences, row-aligned.

    tfds leaves out rows that are malformed in a language, and stores the others in an order by
    their ids. Hence languages are aligned if they have the same rows; the labels tell.

    Raises:
      MissingData, UserError: as `DataFolder.dataset`; or the rows are not the same.
    """
    features, parts = ("sentence1", "label"), {}
    for name in languages:
        rows = data.dataset(f"paws_x_wiki/{name}", split, features, missing)
        parts[name] = tuple(zip(*rows)) or ((), ())
        if parts[name][1:] != parts[languages[0]][1:]:
            raise UserError(
                f"paws_x_wiki: {languages[0]} and {name} have different rows in {split}, as tfds "
                "leaves out malformed ones; choose others with language_bias.languages, or take "
                f"the files; {HINT}"
            )
    return {name: [_clean(text) for text in sentences] for name, (sentences, _) in parts.items()}


def _clean(sentence: str) -> str:
    """Returns a sentence without white space at its ends; "" if it was not translated."""
    sentence = sentence.strip()
    return "" if sentence == _NOT_TRANSLATED else sentence


def _names(header: str) -> list[str]:
    return [name.strip().strip('"').casefold() for name in header.split("\t")]


def _column(path: Path, header: str, columns: int, rows: Sequence[Sequence[str]]) -> int:
    """Returns the index of sentence1."""
    if header:
        return _names(header).index("sentence1")
    filled = [row for row in rows if len(row) == columns]
    has_ids = bool(filled) and all(row[0].strip().isdigit() for row in filled)
    if columns not in (2, 3) or has_ids:
        what = f"{columns} columns" + (", first a number," if has_ids else "")
        raise Unsuitable(f"{path}: {what} and no header; known are {FORMS}")
    return 0


def read_csv_rows(lines: Sequence[str], columns: int) -> Iterator[list[str]]:
    """Reads rows of a file that `csv` wrote; a quoted field may have line ends.

    A line that `csv` cannot have written is split at tabs.
    """
    index = 0
    while index < len(lines):
        some = (f"{line}\n" for line in lines[index : index + _MOST_LINES])
        reader = csv.reader(some, delimiter="\t", strict=True)
        row, count = lines[index].split("\t"), 1
        with contextlib.suppress(csv.Error):
            cells = next(reader)
            if len(cells) == columns:
                row, count = cells, reader.line_num
        yield row
        index += count


def select_distinct_rows(
    columns: Mapping[str, Sequence[str]], sources: Mapping[str, str], max_rows: int = 0
) -> tuple[dict[str, list[str]], list[str]]:
    """Selects rows present in every language that repeat no sentence of an earlier kept row.

    A sentence that occurs twice in a language would find its copy as nearest neighbour, whatever
    the encoder. Two sentences that differ in one language can have the same translation in another.

    Args:
      columns: language -> n sentences, row-aligned; "" where one is missing.
      sources: language -> name of its file, for errors.
      max_rows: keep at most this many rows; 0 keeps all.

    Returns:
      (language -> sentences, notes on the rows left out).
    """
    shortest, longest = (
        extreme(columns, key=lambda name: len(columns[name])) for extreme in (min, max)
    )
    if len(columns[shortest]) != len(columns[longest]):
        raise UserError(
            f"{sources[shortest]} has {len(columns[shortest])} rows, {sources[longest]} has "
            f"{len(columns[longest])}; row i of one must translate row i of the other; download "
            f"both again"
        )
    rows_kept: list[tuple[str, ...]] = []
    seen: list[set[str]] = [set() for _ in columns]
    missing = repeated = 0
    for row in zip(*columns.values()):
        if max_rows and len(rows_kept) == max_rows:
            break
        if not all(row):
            missing += 1
        elif any(sentence in sentences for sentence, sentences in zip(row, seen)):
            repeated += 1
        else:
            rows_kept.append(row)
            for sentence, sentences in zip(row, seen):
                sentences.add(sentence)
    if not rows_kept:
        raise UserError(
            f"{sources[shortest]}: no row has a sentence in each of {', '.join(columns)}"
        )
    notes = []
    if missing:
        notes.append(f"{missing} rows skipped: malformed or without a sentence in some language")
    if repeated:
        notes.append(f"{repeated} rows skipped: a sentence that occurs in an earlier row")
    return {name: [row[i] for row in rows_kept] for i, name in enumerate(columns)}, notes
