"""Texts with their ids from text, JSONL and Parquet files, in bounded memory, and in parts."""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra

FORMATS = ("auto", "text", "jsonl", "parquet")
# A longer line cannot be a sentence; the file probably has no line ends.
_MOST_LINE_BYTES = 1 << 24
# Characters of a part, whatever its rows: a part is in memory as a whole, and in its worker too.
MOST_CHARACTERS = 1 << 25
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".zip")
_BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass
class Part:
    """Texts that are embedded together.

    Attributes:
      number: of the part.
      first_row: number of its first text in the whole input.
      texts: the texts.
      ids: of each; None where the input has none.
      read_bytes: what was read of the files for it; of a Parquet file its share of the rows.
      mended: texts with bytes that are not UTF-8, or half surrogate pairs, which became U+FFFD.
    """

    number: int
    first_row: int
    texts: list[str] = dataclasses.field(default_factory=list)
    ids: list[str] | None = None
    read_bytes: int = 0
    mended: int = 0


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the files are read.

    Attributes:
      form: one of `FORMATS`; `auto`: by the file's name.
      text_field: of JSON objects and Parquet rows.
      id_field: the same; empty: rows have no ids but their numbers.
    """

    form: str = "auto"
    text_field: str = "text"
    id_field: str = ""

    def form_of(self, path: str) -> str:
        """`text`, `jsonl` or `parquet`; raises `UserError` for a compressed file."""
        if path.endswith(_COMPRESSED):
            raise UserError(f"{path}: compressed; unpack it, or write it as Parquet")
        form = self.form
        if form == "auto":
            form = _SUFFIXES.get(Path(path).suffix, "text")
        if form == "text" and self.id_field:
            raise UserError(f"{path}: a text file, whose lines have no --id_field; leave it out")
        if form == "parquet":
            check_extra("data", "pyarrow")
        return form


# Text, id, bytes of the file, whether anything was replaced.
_Row = tuple[str, str | None, int, bool]


def parts(paths: Iterable[str], reading: Reading, rows: int) -> Iterator[Part]:
    """Yields the texts of all files in order, in parts of at most `rows` texts.

    A part of long texts has fewer: it ends with the text that brings it to `MOST_CHARACTERS`.

    Raises:
      UserError: a file cannot be read, or one of its records has no text.
    """
    part, characters = Part(0, 0), 0
    for path in paths:
        for text, identity, size, mended in _READERS[reading.form_of(path)](path, reading):
            part.texts.append(text)
            if identity is not None:
                part.ids = part.ids if part.ids is not None else []
                part.ids.append(identity)
            part.read_bytes += size
            part.mended += mended
            characters += len(text)
            if len(part.texts) == rows or characters >= MOST_CHARACTERS:
                yield part
                part = Part(part.number + 1, part.first_row + len(part.texts))
                characters = 0
    if part.texts:
        yield part


def _lines(path: str) -> Iterator[tuple[int, bytes, int]]:
    """Yields (number from 1, line without its end, size in bytes with the end)."""
    try:
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(_MOST_LINE_BYTES + 1):
                number += 1
                if len(line) > _MOST_LINE_BYTES:
                    raise UserError(
                        f"{path}:{number}: a line of more than {_MOST_LINE_BYTES >> 20} MiB; is it "
                        "text, a line each?"
                    )
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, text.removeprefix(_BOM) if number == 1 else text, len(line)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check --input") from None


def _decoded(line: bytes) -> tuple[str, bool]:
    try:
        return line.decode(), False
    except UnicodeDecodeError:
        return line.decode(errors="replace"), True


def _text_rows(path: str, reading: Reading) -> Iterator[_Row]:
    del reading
    for _, line, size in _lines(path):
        text, mended = _decoded(line)
        yield text, None, size, mended


def _jsonl_rows(path: str, reading: Reading) -> Iterator[_Row]:
    for number, line, size in _lines(path):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        text, mended = _decoded(line)
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not valid JSON ({error}); write one object a line") from None
        if not isinstance(record, dict):
            raise UserError(f"{where}: not a JSON object; write one object a line, in braces")
        yield (*_fields(record, where, reading, mended, size),)


def _parquet_rows(path: str, reading: Reading) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [reading.text_field, *filter(None, [reading.id_field])]
    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in columns if name not in file.schema_arrow.names]
            if missing:
                raise UserError(
                    f"{path}: no column {missing[0]}, it has {', '.join(file.schema_arrow.names)}; "
                    "name them by --text_field and --id_field"
                )
            size, before = os.path.getsize(path), 0
            total, number = max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(batch_size=4096, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    now = size * number // total
                    where = f"{path}: row {number}"
                    yield _fields(record, where, reading, False, now - before)
                    before = now
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file that can be read ({error})") from None


def _fields(record: dict[str, Any], where: str, reading: Reading, mended: bool, size: int) -> _Row:
    text = record.get(reading.text_field)
    if not isinstance(text, str):
        fault = "missing" if text is None else "not a string"
        raise UserError(
            f"{where}: {reading.text_field!r} is {fault}; name its field by --text_field"
        )
    identity = None
    if reading.id_field:
        value = record.get(reading.id_field)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UserError(
                f"{where}: {reading.id_field!r} must be a string or a whole number, got "
                f"{value!r:.60}; name the field of ids by --id_field"
            )
        identity = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON may hold half surrogate pairs.
        text = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
        mended = True
    return text, identity, size, mended


_READERS = {"text": _text_rows, "jsonl": _jsonl_rows, "parquet": _parquet_rows}
