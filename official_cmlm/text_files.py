"""Rows of the files that people have: CSV, TSV, JSON, JSON lines, Parquet, lines of text.

A row has a text, perhaps an id and other columns, and the place that it came from. Each of the
formats is also read from gzip and Zstandard, and from addresses such as gs://bucket/name where
fsspec and the package of that file system are installed. A fault is one line that says what is
there, the columns of a file for instance; memory is bounded.

    reading = Reading(column="body", id_column="id")
    for path in expand_files(["data/*.csv"]):
        for row in read_rows(path, reading):
            print(row.text, row.id, row.path, row.number)

Whoever walks a folder asks `form_of(path)`, which refuses names that it does not know.
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
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.input_files import expand_inputs, is_remote, refuse_special

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
_COMPRESSED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
# A longer line or cell cannot be a sentence; the file probably has no line ends.
MOST_CELL_BYTES = 1 << 24
# A JSON file is read as a whole, unlike JSON lines.
_MOST_JSON_BYTES = 1 << 28
# Text shrinks to a quarter, the worst of logs to a fiftieth; gzip can reach 1:1032.
_BOMB_RATIO, _BOMB_BYTES = 100, 1 << 28
# Zstandard can make 128 KiB of four bytes, and hands over all that a piece expands to.
_PIECE_BYTES = 1 << 11
# Expanded bytes of the rows of a Parquet file that are in memory together.
_BATCH_BYTES = 1 << 26
_SHOWN_COLUMNS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A text and its place.

    Attributes:
      text: the text.
      id: the cell of the column of ids as a string, None without such a column.
      path: the file.
      number: of its first line in a file of lines or a table, with the header as line 1; else of
        the row or item, from 1.
      mended: whether text or id had half surrogate pairs (legal in JSON), which became U+FFFD.
      others: the other columns where they are kept, else empty.
    """

    text: str
    id: str | None
    path: str
    number: int
    mended: bool = False
    others: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files are read.

    Attributes:
      form: one of `FORMATS`; `auto`: by the file's name.
      column: the column, or field of objects, that holds the text. Empty: `text`, or the only
        column of a table.
      id_column: the same for ids; empty: there are none.
      keep: whether the other columns go into `Row.others`. Of a Parquet file, binary and nested
        columns do not.
    """

    form: str = "auto"
    column: str = ""
    id_column: str = ""
    keep: bool = False

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

    def selected(self, columns: list[str], where: str, table: bool = True) -> tuple[str, str]:
        """Returns the columns of text and of ids among those of a table or an object.

        Raises:
          UserError: one is not there, or there twice; the message lists what is there.
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
            if name and columns.count(name) != 1:
                fault = "two columns" if name in columns else "no column"
                raise UserError(
                    f"{where}: {fault} {name!r}, it has {_listed(columns)}; name one by --{flag}"
                )
        return column, self.id_column


def form_of(path: str) -> str:
    """Returns the format that a file's name tells; raises `UserError` if it tells none.

    >>> form_of("data.csv.gz")
    'csv'
    """
    name = _expanded_name(path).lower()
    for suffix, form in SUFFIXES.items():
        if name.endswith(suffix):
            return form
    raise UserError(
        f"{path}: the name does not tell a format; known are {', '.join(SUFFIXES)}, also with"
        f" {' and '.join(_COMPRESSED)}; name it by --format"
    )


def expand_files(patterns: list[str]) -> list[str]:
    """Returns the files that patterns name, local or remote.

    Raises:
      UserError: as `expand_inputs` does; a file system that fsspec does not know here.
    """
    files: dict[str, str] = {}
    for pattern in patterns or expand_inputs([]):
        found = _remote_files(pattern) if is_remote(pattern) else expand_inputs([pattern])
        for path in found:
            files.setdefault(path if is_remote(path) else os.path.abspath(path), path)
    return list(files.values())


def file_state(path: str) -> tuple[int, str]:
    """Returns the size of a file in bytes and what changes when its content does."""
    if not is_remote(path):
        found = os.stat(path)
        return found.st_size, str(found.st_mtime_ns)
    with _remote_errors(path):
        system, name = _file_system(path)
        return int(system.size(name) or 0), str(system.ukey(name))


def read_rows(path: str, reading: Reading) -> Iterator[Row]:
    """Yields the rows of a file in order.

    Empty lines are rows of a text file, and no rows of the other formats.

    Raises:
      UserError: the file cannot be read; it is not of its format or not UTF-8; it has no such
        column; a text or id is missing or of another type; a line or cell is too long.
    """
    form = reading.form_of(path)
    try:
        with open_file(path) as file:
            yield from _READERS[form](path, file, reading)
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: damaged or cut short ({error}); fetch it again") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}); convert it with iconv") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


@contextlib.contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """Yields the bytes of a file, expanded if it is compressed, whatever its name.

    Raises:
      UserError: it is a pipe or a device; its name says that it is compressed, and it is not; it
        expands to more than its size explains.
    """
    refuse_special(path)
    with contextlib.ExitStack() as stack:
        try:
            if is_remote(path):
                stack.enter_context(_remote_errors(path))
                system, name = _file_system(path)
                file = stack.enter_context(system.open(name, "rb"))
            else:
                file = stack.enter_context(open(path, "rb"))
        except IsADirectoryError:
            raise UserError(f"{path}: a folder; name the files in it") from None
        head = file.read(4)
        file.seek(0)
        kind = next((k for k, magic in _COMPRESSED.items() if head.startswith(magic)), "")
        if not kind:
            if head and _expanded_name(path) != path:
                raise UserError(f"{path}: its content is not compressed as its name says")
            yield file
            return
        yield io.BufferedReader(_Expanded(path, file, kind), 1 << 17)


class _Expanded(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, path: str, file: BinaryIO, kind: str) -> None:
        self._path, self._file, self._bytes, self._left = path, file, 0, b""
        if kind == ".gz":
            self._read = gzip.GzipFile(fileobj=file).read1
        else:
            check_extra("data", "zstandard")
            self._decoder: Any = None
            self._read = self._read_zstandard

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._left or self._read(len(buffer))
        data, self._left = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(data)] = data
        self._bytes += len(data)
        if self._bytes > max(_BOMB_BYTES, _BOMB_RATIO * self._file.tell()):
            raise UserError(
                f"{self._path}: expands to more than {_BOMB_RATIO} times its size; unpack it, if it"
                " is to be trusted"
            )
        return len(data)

    def _read_zstandard(self, size: int) -> bytes:
        # `stream_reader` ends silently where a stream is cut.
        import zstandard

        del size
        while True:
            piece = self._file.read(_PIECE_BYTES)
            if not piece:
                if self._decoder is not None:
                    raise EOFError("the stream ends early")
                return b""
            found = b""
            while piece:
                self._decoder = self._decoder or zstandard.ZstdDecompressor().decompressobj()
                try:
                    found += self._decoder.decompress(piece)
                except zstandard.ZstdError as error:
                    raise EOFError(error) from None
                piece = self._decoder.unused_data if self._decoder.eof else b""
                if self._decoder.eof:
                    self._decoder = None
            if found:
                return found


def _expanded_name(path: str) -> str:
    for suffix in _COMPRESSED:
        if path.lower().endswith(suffix):
            return path[: -len(suffix)]
    return path


def _listed(columns: Iterable[str]) -> str:
    names = list(columns)
    more = f" and {len(names) - _SHOWN_COLUMNS} more" if len(names) > _SHOWN_COLUMNS else ""
    return (", ".join(f"{name:.80}" for name in names[:_SHOWN_COLUMNS]) or "none") + more


def _lines(path: str, file: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, line with its end)."""
    number = 0
    while line := file.readline(MOST_CELL_BYTES + 1):
        number += 1
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise UserError(f"{path}: UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) > MOST_CELL_BYTES:
            raise UserError(
                f"{path}:{number}: a line of more than {MOST_CELL_BYTES >> 20} MiB; is it text, a "
                "line each?"
            )
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            shown = line[max(0, error.start - 20) : error.start + 20]
            raise UserError(
                f"{path}:{number}: not UTF-8 at byte {error.start} of the line ({shown!r}); convert"
                " it, e.g. iconv -f WINDOWS-1252 -t UTF-8"
            ) from None


def _text_rows(path: str, file: BinaryIO, reading: Reading) -> Iterator[Row]:
    del reading
    for number, line in _lines(path, file):
        yield Row(line.removesuffix("\n").removesuffix("\r"), None, path, number)


def _table_rows(path: str, file: BinaryIO, reading: Reading) -> Iterator[Row]:
    form = reading.form_of(path)
    # The limit is the module's; its own is lower.
    csv.field_size_limit(MOST_CELL_BYTES)
    lines = (line for _, line in _lines(path, file))
    reader = csv.reader(lines, delimiter="\t" if form == "tsv" else ",", strict=True)
    header: list[str] = []
    column = id_column = ""
    number = 1
    try:
        for cells in reader:
            where, first, number = f"{path}:{number}", number, reader.line_num + 1
            if not cells:
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                column, id_column = reading.selected(header, path)
                continue
            if len(cells) != len(header):
                raise UserError(
                    f"{where}: {len(cells)} cells, but the header has {len(header)}:"
                    f" {_listed(header)}; put quotes around cells with commas, tabs or line ends"
                )
            values = dict(zip(header, cells))
            others = _others(values, column, id_column) if reading.keep else {}
            yield Row(
                values[column], values[id_column] if id_column else None, path, first, False, others
            )
    except csv.Error as error:
        raise UserError(
            f"{path}:{number}: not {form.upper()} ({error}); quotes open and close a whole cell,"
            " and are doubled inside of it"
        ) from None
    if not header:
        raise UserError(f"{path}: empty; a table begins with the names of its columns")


def _others(values: dict[str, Any], column: str, id_column: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (column, id_column)}


def _jsonl_rows(path: str, file: BinaryIO, reading: Reading) -> Iterator[Row]:
    for number, line in _lines(path, file):
        if line.strip():
            where = f"{path}:{number}"
            yield _item_row(
                _parsed(line, where, "write one object a line"), path, number, where, reading
            )


def _json_rows(path: str, file: BinaryIO, reading: Reading) -> Iterator[Row]:
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
    items = _parsed(text, path, "write a list of objects or strings; of lines, --format=jsonl")
    if not isinstance(items, list):
        has = f"an object of {_listed(items)}" if isinstance(items, dict) else "a single value"
        raise UserError(f"{path}: holds {has}; write a list of objects or strings")
    for number, item in enumerate(items, 1):
        yield _item_row(item, path, number, f"{path}: item {number}", reading)


def _parsed(text: str, where: str, advice: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON ({error}); {advice}") from None


def _item_row(item: Any, path: str, number: int, where: str, reading: Reading) -> Row:
    if isinstance(item, str):
        if reading.column or reading.id_column:
            flag = "column" if reading.column else "id_column"
            raise UserError(f"{where}: a string, which has no columns; leave out --{flag}")
        item, reading = {"text": item}, Reading()
    elif not isinstance(item, dict):
        raise UserError(f"{where}: not a JSON object; write objects, in braces, or strings")
    column, id_column = reading.selected(list(item), where, table=False)
    return _row(item, column, id_column, path, number, where, reading.keep)


def _row(
    values: dict[str, Any],
    column: str,
    id_column: str,
    path: str,
    number: int,
    where: str,
    keep: bool,
) -> Row:
    text, identity = values[column], values[id_column] if id_column else None
    if not isinstance(text, str):
        fault = "empty" if text is None else f"not a string but {text!r:.60}"
        raise UserError(
            f"{where}: {column!r} is {fault}; it has {_listed(values)}; name one by --column"
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
    whole = encodable(text), None if identity is None else encodable(str(identity))
    mended = whole[0] != text or (identity is not None and whole[1] != str(identity))
    others = _others(values, column, id_column) if keep else {}
    return Row(whole[0], whole[1], path, number, mended, others)


def encodable(text: str) -> str:
    r"""Returns the text with U+FFFD for half surrogate pairs (`"\ud800"` is legal JSON)."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def _parquet_rows(path: str, file: BinaryIO, reading: Reading) -> Iterator[Row]:
    check_extra("data", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        if isinstance(file, io.BufferedReader) and not file.seekable():
            # Parquet is read from its end.
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, unpacked)
            file = unpacked
        try:
            schema = pq.read_schema(file)
            column, id_column = reading.selected(schema.names, path)
            names = [column, *filter(None, [id_column])]
            if reading.keep:
                names += [f.name for f in schema if f.name not in names and _is_plain(f.type)]
            # A value that stands for thousands is held once.
            strings = [name for name in names if _is_text(schema.field(name).type)]
            parquet = stack.enter_context(pq.ParquetFile(file, read_dictionary=strings))
            number = 0
            for batch in _batches(path, parquet, names):
                for values in zip(*(_values(batch[name]) for name in names)):
                    number += 1
                    record = dict(zip(names, values))
                    where = f"{path}: row {number}"
                    yield _row(record, column, id_column, path, number, where, reading.keep)
        except UnicodeDecodeError:
            raise UserError(
                f"{path}: not UTF-8 after row {number}; write the column anew"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: not a Parquet file that can be read ({error})") from None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_plain(kind: Any) -> bool:
    """Whether values of a type are numbers, texts, booleans or dates."""
    from pyarrow import types

    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_date, types.is_null)
    return _is_text(kind) or any(test(kind) for test in (*tests, types.is_time, types.is_timestamp))


def _batches(path: str, parquet: Any, names: list[str]) -> Iterator[Any]:
    """Yields batches of rows; the file's own sizes are looked at before anything is read."""
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        expanded = 0
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.path_in_schema.split(".")[0] not in names:
                continue
            expanded += chunk.total_uncompressed_size
            if chunk.total_uncompressed_size > max(
                _BOMB_BYTES, _BOMB_RATIO * chunk.total_compressed_size
            ):
                raise UserError(
                    f"{path}: its column {chunk.path_in_schema} expands to"
                    f" {chunk.total_uncompressed_size >> 20} MiB, more than {_BOMB_RATIO} times its"
                    " size; write it anew in smaller row groups, if it is to be trusted"
                )
        rows = max(1, min(4096, _BATCH_BYTES * group.num_rows // max(1, expanded)))
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
    "text": _text_rows,
    "csv": _table_rows,
    "tsv": _table_rows,
    "jsonl": _jsonl_rows,
    "json": _json_rows,
    "parquet": _parquet_rows,
}


def _file_system(path: str) -> tuple[Any, str]:
    check_extra("data", "fsspec")
    from fsspec.core import url_to_fs

    return url_to_fs(path)


@contextlib.contextmanager
def _remote_errors(path: str) -> Iterator[None]:
    """Turns the faults of fsspec and of its file systems, which have classes of their own."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check --input") from None
    except Exception as error:
        raise UserError(f"{path}: cannot be opened ({error or type(error).__name__})") from None


def _remote_files(pattern: str) -> list[str]:
    with _remote_errors(pattern):
        system, name = _file_system(pattern)
        if system.isdir(name):
            found = system.find(name)
        else:
            found = [name] if system.isfile(name) else system.glob(name)
        paths = [system.unstrip_protocol(path) for path in sorted(found)]
    if not paths:
        raise UserError(f"{pattern}: no such file, and nothing matches; check --input")
    return paths
