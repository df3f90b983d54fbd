"""PAWS-X: sentences row-aligned over several languages, without repetitions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder

# PAWS-X's mark of a sentence that was not translated.
_NOT_TRANSLATED = "NS"
_COLUMNS = 3


def first_sentences(data: DataFolder, path: Path, hint: str) -> list[str]:
    """The column `sentence1` of a PAWS-X file; "" for rows without a sentence.

    Files come with a header that names the columns, or without one and with the columns sentence1,
    sentence2, label. Rows with another number of columns, or with `NS`, have no sentence.

    Raises:
      UserError: if the file cannot be read.
    """
    rows = [line.split("\t") for line in data.lines(path, hint)]
    column, width = 0, _COLUMNS
    if rows and "sentence1" in rows[0]:
        column, width = rows[0].index("sentence1"), len(rows[0])
        rows = rows[1:]
    found = [row[column].strip() if len(row) == width else "" for row in rows]
    return ["" if sentence == _NOT_TRANSLATED else sentence for sentence in found]


def aligned_distinct(
    columns: Mapping[str, Sequence[str]], sources: Mapping[str, str], max_rows: int = 0
) -> tuple[dict[str, list[str]], list[str]]:
    """Rows present in every language, none of whose sentences occurs in an earlier kept row.

    A sentence that occurs twice in a language would find its copy as nearest neighbour, whatever
    the encoder. Two sentences that differ in one language can have the same translation in another.

    Args:
      columns: language -> n sentences, row-aligned; "" where one is missing.
      sources: language -> name of its file, for errors.
      max_rows: keep at most this many rows; 0 keeps all.

    Returns:
      (language -> sentences, notes on the rows left out).

    Raises:
      UserError: if the numbers of rows differ or no row is left.
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
    kept: list[tuple[str, ...]] = []
    seen: list[set[str]] = [set() for _ in columns]
    missing = repeated = 0
    for row in zip(*columns.values()):
        if max_rows and len(kept) == max_rows:
            break
        if not all(row):
            missing += 1
        elif any(sentence in known for sentence, known in zip(row, seen)):
            repeated += 1
        else:
            kept.append(row)
            for sentence, known in zip(row, seen):
                known.add(sentence)
    if not kept:
        raise UserError(
            f"{sources[shortest]}: no row has a sentence in each of {', '.join(columns)}"
        )
    notes = []
    if missing:
        notes.append(f"{missing} rows skipped: malformed or without a sentence in some language")
    if repeated:
        notes.append(f"{repeated} rows skipped: a sentence that occurs in an earlier row")
    return {name: [row[i] for row in kept] for i, name in enumerate(columns)}, notes
