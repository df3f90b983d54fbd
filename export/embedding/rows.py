"""Texts of files in parts, in bounded memory, and number of rows and columns of all files."""

import dataclasses
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import Reading, read_rows, replace_surrogates

# A part ends at this many characters, whatever its rows: a whole part is in memory, here and in its
# worker.
MOST_CHARACTERS = 1 << 25
# Most repeated hashes whose ids are compared as a whole.
_MOST_COMPARED = 1000
_KINDS = {bool: "bool", int: "int64", float: "double", str: "string"}


@dataclasses.dataclass
class Texts:
    """Texts that are embedded together, as one part of the job.

    Attributes:
      number: number of the part.
      first_row: number of its first text in the whole input.
      place: number of the file with that text, of the row in it, and of the row in the whole
        input, from 0; the last one is larger than `first_row` by the rows that are left out.
      texts: the texts.
      ids: of each; numbers of rows in the input, if rows are left out and it has none; else None.
      mended: texts or ids with half surrogate pairs, which became U+FFFD.
      columns: the other columns that are kept: name -> (kind, as in `Extent`, and values).
    """

    number: int
    first_row: int
    place: tuple[int, int, int] = (0, 0, 0)
    texts: list[str] = dataclasses.field(default_factory=list)
    ids: list[str] | list[int] | None = None
    mended: int = 0
    columns: dict[str, tuple[str, list[Any]]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Extent:
    """Number of rows and kinds of columns of files.

    Attributes:
      rows: number of texts.
      missing: rows that have no text, whether they are left out or not.
      kinds: of the columns that are kept: `bool`, `int64`, `double`, `string`, or `json`, which
        are strings of JSON, for all else and for columns of several kinds.
    """

    rows: int
    kinds: dict[str, str]
    missing: int = 0


def measure(paths: Sequence[str], reading: Reading, own: Sequence[str] = ("embedding",)) -> Extent:
    """Reads all rows once, so that a fault is met before any of them is embedded.

    Args:
      paths: the files.
      reading: how they are read.
      own: columns that the output has besides ids, and those of the input that are kept.

    Raises:
      UserError: a file has a fault, all are empty, two rows have the same id, or a kept column has
        the name of another one.
    """
    rows, missing, kinds, hashes = 0, 0, {}, array("q")
    with progress.bar(None, " texts", "reading") as bar:
        for path in paths:
            for row in read_rows(path, reading):
                bar.update()
                missing += row.missing
                if reading.leaves_out(row):
                    continue
                rows += 1
                if row.id is not None:
                    hashes.append(hash(row.id))
                for name, value in row.others.items():
                    kind = _kind(value)
                    if kinds.setdefault(name, kind) != kind and kind:
                        kinds[name] = _both(kinds[name], kind)
    if not rows:
        raise UserError(f"{', '.join(paths)}: no text; check --input")
    _check_ids(paths, reading, hashes)
    if reading.keep:
        with_ids = ["id"] if reading.id_column or "id" in own else []
        for name, count in Counter([*own, *kinds, *with_ids]).items():
            if count > 1:
                raise UserError(
                    f"the output has a column {name!r} of its own; rename that of the input, or"
                    " leave out --keep_columns"
                )
    return Extent(rows, {name: kind or "string" for name, kind in kinds.items()}, missing)


def _check_ids(paths: Sequence[str], reading: Reading, hashes: array) -> None:
    """Raises `UserError` if two rows have the same id; memory is eight bytes an id."""
    if not hashes:
        return
    import numpy as np

    ordered = np.frombuffer(hashes, np.int64)
    ordered.sort()
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]][:_MOST_COMPARED].tolist())
    places: dict[str, str] = {}
    for path in paths if repeated else ():
        for row in read_rows(path, reading):
            if reading.leaves_out(row) or hash(row.id) not in repeated:
                continue
            if row.id in places:
                raise UserError(
                    f"{path}:{row.number}: the id {row.id!r:.80} of {places[row.id]} again; give"
                    " each text its own, or leave out --id_column: ids are numbers of rows then"
                )
            places[row.id] = f"{path}:{row.number}"


def _kind(value: Any) -> str:
    """Returns the kind of a value; empty for None, which fits all kinds."""
    if value is None:
        return ""
    kind = _KINDS.get(type(value), "json")
    return "json" if kind == "int64" and not -(1 << 63) <= value < 1 << 63 else kind


def _both(first: str, second: str) -> str:
    if not first:
        return second
    return "double" if {first, second} == {"int64", "double"} else "json"


def read_texts(
    paths: Sequence[str],
    reading: Reading,
    rows: int,
    kinds: dict[str, str] | None = None,
    start: Texts | None = None,
) -> Iterator[Texts]:
    """Yields the texts of all files in order, in parts of at most `rows` texts.

    A part of long texts has fewer: it ends with the text that brings it to `MOST_CHARACTERS`.

    Args:
      paths: the files.
      reading: how they are read.
      rows: most texts of a part.
      kinds: of the columns that are kept.
      start: what comes first, with or without its texts. Default: the input's first part.

    Raises:
      UserError: a file cannot be read, or one of its records has no text.
    """

    def empty(number: int, first_row: int, place: tuple[int, int, int]) -> Texts:
        columns = {name: (kind, []) for name, kind in (kinds or {}).items()}
        ids = [] if reading.id_column or reading.on_missing == "skip" else None
        return Texts(number, first_row, place, ids=ids, columns=columns)

    part, characters = empty(0, 0, (0, 0, 0)), 0
    if start is not None:
        part = empty(start.number, start.first_row, start.place)
    first, skipped, number = part.place
    for file in range(first, len(paths)):
        rows_of_file = islice(read_rows(paths[file], reading), skipped, None)
        for at, row in enumerate(rows_of_file, skipped):
            if not part.texts:
                part.place = (file, at, number)
            number += 1
            if reading.leaves_out(row):
                continue
            part.texts.append(row.text)
            if part.ids is not None:
                part.ids.append(number - 1 if row.id is None else row.id)
            part.mended += row.mended
            characters += len(row.text)
            for name, (kind, values) in part.columns.items():
                value = _convert(row.others.get(name), kind)
                characters += len(value) if isinstance(value, str) else 0
                values.append(value)
            if len(part.texts) == rows or characters >= MOST_CHARACTERS:
                yield part
                part = empty(
                    part.number + 1, part.first_row + len(part.texts), (file, at + 1, number)
                )
                characters = 0
        skipped = 0
    if part.texts:
        yield part


def _convert(value: Any, kind: str) -> Any:
    if value is None or kind in ("bool", "int64"):
        return value
    if kind == "double":
        return float(value)
    return replace_surrogates(value if kind == "string" else json.dumps(value, ensure_ascii=False))
