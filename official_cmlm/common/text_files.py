"""Rows of the files that people have: CSV, TSV, JSON, JSON lines, Parquet, lines of text.

A row has a text, perhaps an id and other columns, and the place that it came from. Each of the
formats is also read from gzip and Zstandard, and from addresses such as gs://bucket/name where
the package of that file system is installed. A fault is one line that says what is
there, the columns of a file for instance; memory is bounded.

    reading = Reading(column="body", id_column="id")
    for path in expand_inputs(["data/*.csv"]):
        for row in read_rows(path, reading):
            print(row.text, row.id, row.path, row.number)

Code that walks a folder calls `form_of(path)`, which refuses names that it does not know.
"""

import contextlib
import csv
import dataclasses
import gzip
import io
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, BinaryIO

from official_cmlm.common.errors import UserError, guard_reading, list_names
from official_cmlm.common.extras import check_extra
from official_cmlm.common.input_files import is_remote, join_directory, open_stored, remote_system
from official_cmlm.common.validation import Flag, OneOf

SUFFIXES = {
    ".txt": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
FORMATS = ("auto", *dict.fromkeys(SUFFIXES.values()))
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
COMPRESSED = (".gz", ".zst")
# A longer line or row cannot be a sentence; the file probably has no line ends.
MOST_CELL_BYTES = 1 << 24
# A JSON file is read as a whole, unlike JSON lines.
_MOST_JSON_BYTES = 1 << 28
# Text shrinks to a quarter, the most repetitive logs to a fiftieth; gzip can reach 1:1032.
BOMB_RATIO, BOMB_BYTES = 100, 1 << 28
BUFFER_BYTES = 1 << 17
# Expanded bytes of the rows of a Parquet file that are in memory together.
_BATCH_BYTES = 1 << 26
# pyarrow can read columns in these encodings as dictionaries; the first two encode levels, not
# values.
_DICTIONARY_ENCODINGS = {"RLE", "BIT_PACKED", "PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_SHOWN_COLUMNS = 20
_OR_MISSING = ", or leave rows without a text out by --on_missing=skip"
# (number of the line, row or item, its place for messages, the columns or the text)
Record = tuple[int, str, dict[str, Any] | str]
# (columns, place for messages, whether they are a table's) -> the columns that are needed
Choose = Callable[[list[str], str, bool], list[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A text and its place.

    Attributes:
      text: the text.
      id: the cell of the column of ids as a string, None without such a column.
      path: the file.
      number: number of its first line in a file of lines or a table, with the header as line 1;
        otherwise number of the row or item, from 1.
      mended: whether text or id had half surrogate pairs (legal in JSON), which became U+FFFD.
      missing: whether the text is missing: the cell is null or blank, the JSON object has no such
        field, or the line is blank.
      others: the other columns where they are kept, else empty.
    """

    text: str
    id: str | None
    path: str
    number: int
    mended: bool = False
    missing: bool = False
    others: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Reading:
    """Settings of reading files.

    Attributes:
      form: format of the input. auto: by the suffix of the name, such as .txt, .csv, .jsonl or
        .parquet, also with .gz and .zst.
      column: column of a table, or field of JSON objects, that holds the text. Default: text, or
        the only column of a table.
      id_column: column or field with an id of each text. Default: none, ids are the numbers of the
        rows.
      keep: whether the text and the other columns, but not binary and nested ones of a Parquet
        file, are written beside the vectors; needs Parquet or JSON lines as output.
      on_missing: what becomes of rows without a text, which are counted at the end: an error, they
        are left out, or their text is empty. Blank lines of a text file are never an error.
    """

    form: Annotated[str, OneOf(FORMATS), Flag("format")] = "auto"
    column: str = ""
    id_column: str = ""
    keep: Annotated[bool, Flag("keep_columns")] = False
    on_missing: Annotated[str, OneOf(("error", "skip", "empty"))] = "error"

    def form_of(self, path: str) -> str:
        """Returns the format of a file.

        Raises:
          UserError: its name does not tell the format, or the format has no columns and one is
            asked for.
        """
        form = form_of(path) if self.form == "auto" else self.form
        for flag, value in (
            ("column", self.column),
            ("id_column", self.id_column),
            ("keep_columns", self.keep),
        ):
            if form == "text" and value:
                raise UserError(
                    f"{path}: lines of text, which have no columns; leave out --{flag}, or name"
                    " the --format of a table"
                )
        return form

    def leaves_out(self, row: Row) -> bool:
        """Returns whether a row is left out, as it has no text."""
        return row.missing and self.on_missing == "skip"

    def select_columns(self, columns: list[str], where: str, table: bool) -> tuple[str, str]:
        """Returns the columns of text and of ids among those of a table or an object.

        An object may lack the text, unless that is an error.

        Raises:
          UserError: a column is missing or occurs twice; the message lists the columns.
        """
        column = self.column
        if not column:
            column = columns[0] if table and len(columns) == 1 else "text"
            if column != "text" and any(sign in column for sign in ";\t|"):
                raise UserError(
                    f"{where}: its header {column!r:.120} is one cell; separate cells by commas, or"
                    " by tabs in a .tsv"
                )
        for flag, name in (("column", column), ("id_column", self.id_column)):
            may_lack = not table and flag == "column" and self.on_missing != "error"
            if name and columns.count(name) != 1 and not may_lack:
                fault = "two columns" if name in columns else "no column"
                raise UserError(
                    f"{where}: {fault} {name!r}, it has {list_columns(columns)}; name one by"
                    f" --{flag}{'' if table or flag == 'id_column' else _OR_MISSING}"
                )
        return column, self.id_column


def form_of(path: str) -> str:
    """Returns the format that a file's name tells; raises `UserError` if it tells none.

    >>> form_of("data.csv.gz")
    'csv'
    """
    name = strip_compression(path).lower()
    for suffix, form in SUFFIXES.items():
        if name.endswith(suffix):
            return form
    raise UserError(
        f"{path}: the name does not tell a format; known are {', '.join(SUFFIXES)}, also with"
        f" {' and '.join(COMPRESSED)}; rename it, or name its format by --format where the"
        " command has that flag"
    )


def file_state(path: str) -> tuple[int, str]:
    """Returns the size of a file in bytes, and a text that changes when its content does."""
    if not is_remote(path):
        status = os.stat(path)
        return status.st_size, str(status.st_mtime_ns)
    with remote_system(path) as (system, name):
        return int(system.size(name) or 0), str(system.ukey(name))


def read_rows(path: str, reading: Reading) -> Iterator[Row]:
    """Yields the rows of a file in order.

    Empty lines are rows of a text file; the other formats skip them.

    Raises:
      UserError: the file cannot be read; it is not of its format or not UTF-8; it has no such
        column; an id is missing, or a text and `reading` makes that an error; one of them is of
        another type; a line or cell is too long.
    """
    form = reading.form_of(path)
    chosen, is_there = ("", ""), False

    def choose(columns: list[str], where: str, table: bool) -> list[str]:
        nonlocal chosen, is_there
        chosen = reading.select_columns(columns, where, table)
        is_there = is_there or chosen[0] in columns
        return [name for name in chosen if name]

    with guard_reading(path), open_file(path) as file:
        for number, where, values in read_records(path, form, file, choose, reading.keep):
            if isinstance(values, dict):
                row = _row(values, *chosen, path, number, where, reading.keep)
            elif reading.column or reading.id_column:
                flag = "column" if reading.column else "id_column"
                raise UserError(f"{where}: a string, which has no columns; leave out --{flag}")
            else:
                text = replace_surrogates(values)
                row = Row(text, None, path, number, text is not values, not text.strip())
            if row.missing and reading.on_missing == "error" and form != "text":
                place = f" in {chosen[0]!r}" if isinstance(values, dict) else ""
                raise UserError(
                    f"{where}: no text{place}; leave such rows out by --on_missing=skip, or give "
                    "them an empty text by --on_missing=empty"
                )
            yield row
    if chosen[0] and not is_there:
        raise UserError(f"{path}: no object has {chosen[0]!r}; name a field by --column")


def read_records(
    path: str, form: str, file: io.BufferedReader, choose: Choose, keep: bool = False
) -> Iterator[Record]:
    """Yields the lines, the rows or the items of a file in order.

    Args:
      path: its name for messages.
      form: a format of `FORMATS` but `auto`.
      file: its bytes, as `open_file` gives them.
      choose: called with the columns of a table, or the fields of each JSON object; returns those
        that are needed, or raises `UserError`.
      keep: whether all columns of a Parquet file that hold plain values are read.

    Raises:
      UserError: the file cannot be read, or is not of its format or not UTF-8; a cell is too long.
    """
    number = 0
    try:
        for record in _READERS[form](path, form, file, choose, keep):
            number = record[0]
            yield record
    except BrokenStreamError as error:
        raise error.at(path, f"after row {number}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_columns(
    path: str, file: io.BufferedReader, columns: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place and the cells of these columns, of each row of a table or JSON object.

    Raises:
      UserError: as `read_records`; or a column is missing or occurs twice.
    """

    def choose(header: list[str], where: str, table: bool) -> list[str]:
        for name in columns:
            if header.count(name) != 1:
                raise UserError(f"{where}: no column {name!r}, it has {list_columns(header)}")
        return list(columns)

    for _, where, row in read_records(path, form_of(path), file, choose):
        if not isinstance(row, dict):
            raise UserError(f"{where}: a text, which has no columns; give a table")
        yield where, row


def read_cells(
    path: str, file: io.BufferedReader, columns: Sequence[str], score_column: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Yields the place and the texts of these columns, of each row where none of them is blank.

    Whole numbers, which are labels, become texts, as do other numbers of the column of scores.

    Raises:
      UserError: as `read_columns`; or a cell is not a string.
    """
    for where, row in read_columns(path, file, columns):
        cells = [row[name] for name in columns]
        for i, name in enumerate(columns):
            if isinstance(cells[i], int | float if name == score_column else int):
                cells[i] = str(cells[i])
            elif not isinstance(cells[i], str):
                raise UserError(f'{where}: "{name}" is not of the right type; make it a string')
        if all(cell.strip() for cell in cells):
            yield where, cells


def read_with_language(
    paths: Iterable[str], column: str = "text", language_column: str = "lang"
) -> Iterator[tuple[str, str]]:
    """Yields text and language of each row of tables or JSON objects; blank texts are left out.

    Raises:
      UserError: as `read_columns`; or a cell is not a string; or a language has no text.
    """
    languages: dict[str, bool] = {}
    for path in paths:
        with open_file(path) as file:
            for where, row in read_columns(path, file, [column, language_column]):
                text, language = row[column], row[language_column]
                if not (isinstance(text, str) and isinstance(language, str) and language.strip()):
                    raise UserError(
                        f"{where}: {column!r} and {language_column!r} must be a text and its "
                        f"language, got {text!r:.40} and {language!r:.40}"
                    )
                languages[language] = languages.get(language, False) or bool(text.strip())
                if text.strip():
                    yield replace_surrogates(text), language
    if not languages or not all(languages.values()):
        lacking = list_names([language for language, has_text in languages.items() if not has_text])
        where = f" in {lacking}" if lacking else ""
        raise UserError(f"{path}: no text{where}; give texts of each language")


def open_file(path: str) -> io.BufferedReader:
    """Opens a file, whose bytes are expanded if it is compressed, whatever its name.

    Raises:
      UserError: it cannot be opened; it is a pipe or a device; its name says that it is compressed,
        and it is not.
    """
    expanded = ExpandedFile(path, BOMB_BYTES)
    file = io.BufferedReader(expanded, BUFFER_BYTES)
    if not expanded.form and strip_compression(path) != path and file.peek(1):
        file.close()
        raise UserError(f"{path}: its content is not compressed as its name says")
    return file


class BrokenStreamError(Exception):
    """A failure of reading; a caller, who knows how far it has read, makes it a `UserError`."""

    def __init__(self, what: str, remedy: str, detail: object = "") -> None:
        super().__init__(what)
        self._what, self._remedy, self._detail = what, remedy, detail

    def at(self, path: str, place: str) -> UserError:
        """Returns the error for the user; `place` is how far it was read: "after line 3"."""
        detail = f" ({self._detail})" if self._detail else ""
        return UserError(f"{path}: {self._what} {place}{detail}; {self._remedy}")


class ExpandedFile(io.RawIOBase):
    """The bytes of a file, expanded if its first bytes are those of gzip or Zstandard.

    Attributes:
      stored: the file as it is stored.
      form: "gzip", "zstd" or empty.
      bomb_remedy: the end of the message for a file that expands too much.
    """

    stored: BinaryIO | None = None
    bomb_remedy = "unpack it, if it is to be trusted"

    def __init__(self, path: str, most_bytes: int, directory: str = "") -> None:
        """Opens the file.

        Args:
          path: local, or with a scheme.
          most_bytes: more bytes than these are expanded only while they are at most a hundred
            times the compressed bytes read.
          directory: the directory that a relative path starts from; "": the current one.

        Raises:
          UserError: it cannot be opened, or is a pipe or a device, which might never end.
        """
        place = join_directory(path, directory)
        self.stored, head = open_stored(place, path)
        self.stored.seek(0)
        self._most, self._position, self._remote = most_bytes, 0, is_remote(place)
        self._read, self.form = self.stored.read, ""
        if head.startswith(GZIP_MAGIC):
            # `read1` hands over what was expanded before a stream breaks off, so that the place
            # named in the message is the right one.
            self._read, self.form = gzip.GzipFile(fileobj=self.stored).read1, "gzip"
        elif head.startswith(ZSTD_MAGIC):
            check_extra("data", "fastwarc")
            from fastwarc.stream_io import ZstdReader

            # Unlike the reader of `zstandard`, this one detects a file that was cut short.
            self._read, self.form = ZstdReader(self.stored, fsspec_args=False).read, "zstd"

    def readable(self) -> bool:
        """Returns True, as the file can be read."""
        return True

    def close(self) -> None:
        """Closes the file."""
        if self.stored is not None:
            self.stored.close()
        super().close()

    def tell(self) -> int:
        """Returns the number of bytes read, after decompression."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Reads at least one byte unless the file ends, as `io.RawIOBase` says.

        Raises:
          BrokenStreamError: the stream is corrupt, ends early, expands too much, or the file
            cannot be read.
        """
        again = "fetch the file again"
        try:
            data = self._read(min(len(buffer), BUFFER_BYTES))
        except EOFError:
            raise BrokenStreamError("the gzip stream ends early", again) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BrokenStreamError("the gzip stream is corrupt", again, error) from None
        except OSError as error:
            if error.errno is not None or not self.form:
                raise BrokenStreamError(
                    "cannot be read", "check the disk or the connection", error.strerror
                ) from None
            if "incomplete" in str(error):
                raise BrokenStreamError("the zstd stream ends early", again) from None
            raise BrokenStreamError("the zstd stream is corrupt", again, error) from None
        except Exception as error:
            # Remote file systems have errors of their own classes.
            if not self._remote:
                raise
            raise BrokenStreamError("cannot be read", "check the connection", error) from None
        buffer[: len(data)] = data
        self._position += len(data)
        if (
            self.form
            and self._position > self._most
            and self._position > BOMB_RATIO * self.stored.tell()
        ):
            raise BrokenStreamError(
                f"the {self.form} stream expands to more than {self._most} bytes and"
                f" {BOMB_RATIO} times its size",
                self.bomb_remedy,
            )
        return len(data)


def strip_compression(path: str) -> str:
    """Returns the name of a file without the ending of a compression, in any case."""
    for suffix in COMPRESSED:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path


def list_columns(columns: Iterable[str]) -> str:
    """Returns the names of columns for a message."""
    return list_names([f"{name:.80}" for name in columns], _SHOWN_COLUMNS) or "none"


class LineTooLongError(Exception):
    """A line too long; a caller, who knows its number, makes it a `UserError`."""


def read_whole_lines(
    path: str, read: Callable[[int], bytes], most_bytes: int, running_text: bool = False
) -> Iterator[tuple[int, bytes]]:
    r"""Yields (byte at which they begin, bytes of many whole lines) of a file.

    A line ends with \n, in running text also with \r\n or a lone \r. Only the last one may lack its
    end.

    Args:
      path: the file's name for messages.
      read: returns at least one byte and at most so many, or none at the file's end.
      most_bytes: length of the longest line; bounds the memory.
      running_text: whether a lone \r ends a line, and a NUL byte is refused.

    Raises:
      LineTooLongError: a line is longer.
      UserError: a NUL byte.
    """
    ends = (b"\n", b"\r") if running_text else (b"\n",)
    rest: list[bytes] = []
    rest_bytes, offset, held = 0, 0, b""
    while chunk := read(min(BUFFER_BYTES, most_bytes)):
        chunk = held + chunk
        if running_text and b"\0" in chunk:
            raise UserError(
                f"{path}: looks like a binary or UTF-16 file (NUL byte at byte"
                f" {offset + rest_bytes + chunk.index(0)}); convert it to UTF-8 text"
            )
        # A \r at the end may be the first half of \r\n.
        chunk, held = (chunk[:-1], b"\r") if chunk.endswith(b"\r") else (chunk, b"")
        # All lines but the first began in this chunk and are not longer.
        first = min((at for at in map(chunk.find, ends) if at >= 0), default=len(chunk))
        if rest_bytes + len(chunk[:first].rstrip(b"\r")) > most_bytes:
            raise LineTooLongError
        if end := max(map(chunk.rfind, ends)) + 1:
            yield offset, b"".join([*rest, chunk[:end]])
            offset += rest_bytes + end
            rest, rest_bytes, chunk = [], 0, chunk[end:]
        rest.append(chunk)
        rest_bytes += len(chunk)
    if last := b"".join([*rest, held]):
        yield offset, last


def _lines(path: str, file: io.BufferedReader) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, line with its end); raises `UserError` for what is not UTF-8."""
    number = 0
    try:
        for offset, data in read_whole_lines(path, file.read1, MOST_CELL_BYTES):
            if offset == 0:
                if data.startswith(UTF16_BOMS):
                    raise UserError(f"{path}: UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
                data = data.removeprefix(b"\xef\xbb\xbf")
            for line in io.BytesIO(data):
                number += 1
                yield number, _decode(line, f"{path}:{number}")
    except LineTooLongError:
        raise UserError(
            f"{path}:{number + 1}: a line of more than {MOST_CELL_BYTES >> 20} MiB; is it text, a"
            " line each?"
        ) from None


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        shown = line[max(0, error.start - 20) : error.start + 20]
        raise UserError(
            f"{where}: not UTF-8 at byte {error.start} of the line ({shown!r}); convert it, e.g."
            " iconv -f WINDOWS-1252 -t UTF-8"
        ) from None


def _text_lines(path: str, form: str, file: io.BufferedReader, *unused: Any) -> Iterator[Record]:
    for number, line in _lines(path, file):
        yield number, f"{path}:{number}", line.removesuffix("\n").removesuffix("\r")


def split_csv(line: str, delimiter: str = ",") -> list[str]:
    """Returns the cells of one line of CSV, whose quotes may be open; none if one is too long."""
    csv.field_size_limit(MOST_CELL_BYTES)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _table_rows(
    path: str, form: str, file: io.BufferedReader, choose: Choose, *unused: Any
) -> Iterator[Record]:
    # The limit holds for the whole module csv, whose default is lower.
    csv.field_size_limit(MOST_CELL_BYTES)
    number, size = 1, 0

    def read_bounded() -> Iterator[str]:
        nonlocal size
        for _, line in _lines(path, file):
            size += len(line)
            if size > MOST_CELL_BYTES:
                raise csv.Error(f"a row of more than {MOST_CELL_BYTES >> 20} Mi characters")
            yield line

    reader = csv.reader(read_bounded(), delimiter="\t" if form == "tsv" else ",", strict=True)
    header: list[str] = []
    try:
        for cells in reader:
            where, first, number, size = f"{path}:{number}", number, reader.line_num + 1, 0
            if not cells:
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                choose(header, path, True)
                continue
            if len(cells) != len(header):
                raise UserError(
                    f"{where}: {len(cells)} cells, but the header has {len(header)}:"
                    f" {list_columns(header)}; put quotes around cells with commas, tabs or line"
                    " ends"
                )
            yield first, where, dict(zip(header, cells))
    except csv.Error as error:
        raise UserError(
            f"{path}:{number}: not {form.upper()} ({error}); quotes open and close a whole cell,"
            " and are doubled inside of it"
        ) from None
    if not header:
        raise UserError(f"{path}: empty; a table begins with the names of its columns")


def _json_lines(
    path: str, form: str, file: io.BufferedReader, choose: Choose, *unused: Any
) -> Iterator[Record]:
    for number, line in _lines(path, file):
        if line.strip():
            where = f"{path}:{number}"
            yield _item(_parse_json(line, where, "write one object a line"), number, where, choose)


def _json_items(
    path: str, form: str, file: io.BufferedReader, choose: Choose, *unused: Any
) -> Iterator[Record]:
    data = file.read(_MOST_JSON_BYTES + 1)
    if len(data) > _MOST_JSON_BYTES:
        raise UserError(
            f"{path}: more than {_MOST_JSON_BYTES >> 20} MiB of JSON; write it as .jsonl, an object"
            " a line"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; convert it with iconv") from None
    items = _parse_json(text, path, "write a list of objects or strings; of lines, --format=jsonl")
    if not isinstance(items, list):
        has = f"an object of {list_columns(items)}" if isinstance(items, dict) else "a single value"
        raise UserError(f"{path}: holds {has}; write a list of objects or strings")
    for number, item in enumerate(items, 1):
        yield _item(item, number, f"{path}: item {number}", choose)


def parse_object(line: str, where: str) -> dict[str, Any]:
    """Returns the JSON object of a line; raises `UserError`, naming `where`, if it is not one."""
    value = _parse_json(line, where, "write one JSON object a line")
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; write one object a line, in braces")
    return value


def _parse_json(text: str, where: str, advice: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UserError(f"{where}: not valid JSON ({fault}); {advice}") from None


def _item(item: Any, number: int, where: str, choose: Choose) -> Record:
    if isinstance(item, dict):
        choose(list(item), where, False)
    elif not isinstance(item, str):
        raise UserError(f"{where}: not a JSON object; write objects, in braces, or strings")
    return number, where, item


def _row(
    values: dict[str, Any],
    column: str,
    id_column: str,
    path: str,
    number: int,
    where: str,
    keep: bool,
) -> Row:
    text, identity = values.get(column), values[id_column] if id_column else None
    text = "" if text is None else text
    if not isinstance(text, str):
        raise UserError(
            f"{where}: {column!r} is not a string but {text!r:.60}; it has {list_columns(values)};"
            " name one by --column"
        )
    if len(text) > MOST_CELL_BYTES:
        raise UserError(
            f"{where}: {column!r} has {len(text)} characters, more than {MOST_CELL_BYTES >> 20} Mi"
        )
    if id_column and (isinstance(identity, bool) or not isinstance(identity, str | int)):
        raise UserError(
            f"{where}: {id_column!r} must be a string or a whole number, got {identity!r:.60}; name"
            " the column of ids by --id_column"
        )
    whole = replace_surrogates(text)
    name = None if identity is None else str(identity)
    whole_name = None if name is None else replace_surrogates(name)
    others = {k: v for k, v in values.items() if k not in (column, id_column)} if keep else {}
    mended = whole is not text or whole_name is not name
    return Row(whole, whole_name, path, number, mended, not whole.strip(), others)


def replace_surrogates(text: str) -> str:
    r"""Returns the text with U+FFFD for half surrogate pairs (`"\ud800"` is legal JSON)."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def _parquet_rows(
    path: str, form: str, file: io.BufferedReader, choose: Choose, keep: bool
) -> Iterator[Record]:
    check_extra("parquet", "pyarrow")
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack, guard_reading(path, "fetch or write it anew"):
        # Parquet is read from its end.
        source: Any = file.raw.stored
        if file.raw.form:
            source = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, source)
        try:
            metadata = pq.read_metadata(source)
            schema = metadata.schema.to_arrow_schema()
            names = choose(schema.names, path, True)
            if keep:
                names += [f.name for f in schema if f.name not in names and _is_plain(f.type)]
            strings = _check_columns(path, metadata, schema, names)
            parquet = stack.enter_context(
                pq.ParquetFile(source, metadata=metadata, read_dictionary=strings)
            )
            # A text that the file stores once can be that of all rows.
            number, most = 0, max(BOMB_BYTES, BOMB_RATIO * source.seek(0, os.SEEK_END))
            for batch in _batches(path, parquet, names, strings):
                for values in zip(*(_values(batch[name]) for name in names)):
                    number += 1
                    most -= sum(len(value) for value in values if isinstance(value, str))
                    if most < 0:
                        raise UserError(
                            f"{path}: row {number}: texts of {BOMB_BYTES >> 20} Mi characters and"
                            f" {BOMB_RATIO} times the file's size; write them as .jsonl, if they"
                            " are to be trusted"
                        )
                    yield number, f"{path}: row {number}", dict(zip(names, values))
        except UnicodeDecodeError:
            raise UserError(
                f"{path}: not UTF-8 after row {number}; write the column anew"
            ) from None


def _check_columns(path: str, metadata: Any, schema: Any, names: list[str]) -> list[str]:
    """Checks columns before any of their data are read; returns those to read as dictionaries.

    A dictionary holds a value that occurs thousands of times only once. Columns in encodings other
    than those of dictionaries and plain values cannot be read so.
    """
    for field in schema:
        if not _is_read(field.name, names):
            continue
        if schema.names.count(field.name) > 1:
            raise UserError(f"{path}: two columns {field.name!r:.80}; rename one of them")
        if not _is_plain(field.type):
            raise UserError(
                f"{path}: its column {field.name!r:.80} has the type {field.type!s:.60}, which"
                " is not text, a number, a date or a time; write it as strings, or choose another"
            )
    others = {
        chunk.path_in_schema
        for chunk in _chunks(metadata, range(metadata.num_row_groups))
        if not _DICTIONARY_ENCODINGS.issuperset(chunk.encodings)
    }
    return [
        field.name
        for field in schema
        if _is_read(field.name, names) and _is_text(field.type) and field.name not in others
    ]


def _is_read(column: str, names: list[str]) -> bool:
    """Returns whether pyarrow reads a column for these names; it takes `a.b` as a part of `a`."""
    return any(f"{column}.".startswith(f"{name}.") for name in names)


def _chunks(metadata: Any, groups: Iterable[int]) -> Iterator[Any]:
    for group in map(metadata.row_group, groups):
        yield from map(group.column, range(group.num_columns))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _is_plain(kind: Any) -> bool:
    """Returns whether values of a type are numbers, texts, booleans or dates."""
    from pyarrow import types

    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_date, types.is_null)
    return _is_text(kind) or any(test(kind) for test in (*tests, types.is_time, types.is_timestamp))


def _batches(path: str, parquet: Any, names: list[str], strings: list[str]) -> Iterator[Any]:
    """Yields batches of rows; the sizes that the file states are checked before it is read."""
    for number in range(parquet.num_row_groups):
        group_rows = max(1, parquet.metadata.row_group(number).num_rows)
        row_bytes = 0.0
        for chunk in _chunks(parquet.metadata, [number]):
            column, expanded = chunk.path_in_schema, chunk.total_uncompressed_size
            if not _is_read(column, names):
                continue
            # Each value may repeat the one before it, and be as long as the whole chunk.
            repeats = chunk.physical_type == "BYTE_ARRAY" and column not in strings
            row_bytes += expanded if repeats else expanded / group_rows
            if expanded > max(BOMB_BYTES, BOMB_RATIO * chunk.total_compressed_size):
                raise UserError(
                    f"{path}: its column {column} expands to {expanded >> 20} MiB, more than"
                    f" {BOMB_RATIO} times its size; write it anew in smaller row groups, if it is"
                    " to be trusted"
                )
        rows = int(max(1, min(4096, _BATCH_BYTES / max(1, row_bytes))))
        yield from parquet.iter_batches(rows, row_groups=[number], columns=names)


def _values(array: Any) -> Iterator[Any]:
    import pyarrow as pa

    if pa.types.is_temporal(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_dictionary(array.type):
        return iter(array.to_pylist())
    values = array.dictionary.to_pylist()
    return (None if index is None else values[index] for index in array.indices.to_pylist())


_READERS = {
    "text": _text_lines,
    "csv": _table_rows,
    "tsv": _table_rows,
    "jsonl": _json_lines,
    "json": _json_items,
    "parquet": _parquet_rows,
}
