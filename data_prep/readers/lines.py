"""The lines of files of text: UTF-8, plain or compressed, local or remote, in bounded memory."""

import codecs
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.input_files import is_remote
from official_cmlm.common.text_files import (
    GZIP_MAGIC,
    UTF16_BOMS,
    ZSTD_MAGIC,
    BrokenStreamError,
    ExpandedFile,
)

from ..counts import Counts
from .document import Part, ReadOptions

CHUNK_BYTES = 1 << 20
_BOM = "\ufeff"
_LINE_END = re.compile(rb"\r\n|\r|\n")


def is_plain(path: str) -> bool:
    """Returns whether a file is local and not compressed, so that it can be read from its middle.

    False for a file that cannot be opened.
    """
    if is_remote(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(len(ZSTD_MAGIC))
    except OSError:
        return False
    return not head.startswith((GZIP_MAGIC, ZSTD_MAGIC, *UTF16_BOMS))


class CountedFile(ExpandedFile):
    """The bytes of a file, expanded and counted; with `start`, from the byte before it on.

    Of the parts of a file, only the part that starts at 0 counts as a file.
    """

    bomb_remedy = "leave it out, or raise --max_expanded_mb if it is to be trusted"

    def __init__(self, path: str, counts: Counts, options: ReadOptions, start: int = 0) -> None:
        counts.files += not start
        super().__init__(path, options.max_expanded_bytes, options.directory, max(0, start - 1))
        self._counts = counts

    def readinto(self, buffer: Any) -> int:
        """Reads and counts bytes, as `ExpandedFile.readinto` does."""
        count = super().readinto(buffer)
        self._counts.bytes += count
        return count


@dataclasses.dataclass(frozen=True)
class Block:
    """Lines of a file that were read together.

    Attributes:
      number: number of the first line, from 1; in a part of a file it counts from the part.
      lines: the lines without their ends.
      offset: where the first line begins in the file, decompressed, in bytes.
      data: the lines as they are in the file.
    """

    number: int
    lines: list[str]
    offset: int
    data: bytes

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The byte of the file at which each line begins, and then the byte after the last line."""
        data = np.frombuffer(self.data, np.uint8)
        ends = data == ord("\n")
        if b"\r" in self.data:
            returns = data == ord("\r")
            # The last byte of \r\n is the line's end.
            returns[:-1] &= ~ends[1:]
            ends |= returns
        return self.offset + np.append(0, np.flatnonzero(ends) + 1)


def iter_lines(
    path: str, counts: Counts, options: ReadOptions, **more: Any
) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of all lines of a file; see `iter_blocks`."""
    for block in iter_blocks(path, counts, options, **more):
        yield from enumerate(block.lines, block.number)


def iter_blocks(
    path: str,
    counts: Counts,
    options: ReadOptions,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    part: Part | None = None,
    is_border: Callable[[bytes], bool] = bool,
    any_encoding: bool = False,
) -> Iterator[Block]:
    r"""Yields the lines of a file, many at a time.

    Gzip and Zstandard are recognised by their first bytes, not by the file's name. Lines end with
    \n, \r\n or a lone \r; a byte order mark is dropped; bytes that are not UTF-8 become U+FFFD and
    are counted.

    Args:
      path: the file.
      counts: counts the file, its lines and bytes.
      options: the limits; no more than `max_line_bytes` and one chunk is in memory.
      chunk_bytes: bytes read at a time.
      part: bytes (start, stop) of a file that is plain. The part begins with the first border line
        at `start` or after it (or with the file, for 0) and ends before the first border line at
        `stop` or after it; so parts that tile the file's bytes tile its lines.
      is_border: whether a line, given with its end, is a border line; default: every line.
      any_encoding: whether UTF-16 with a byte order mark is read too, and a line that is not UTF-8
        as Latin-1.

    Raises:
      UserError: no such file, a directory, a broken or exploding compressed stream, a NUL byte,
        UTF-16, a line too long.
    """
    start = part[0] if part else 0
    number = 0
    # Only the line that began in an earlier chunk can be longer than a chunk, so with chunks no
    # longer than the limit that is the only line to measure.
    chunk_bytes = min(chunk_bytes, options.max_line_bytes)

    def line(number: int) -> str:
        return f"{number} after byte {start}" if start else str(number)

    try:
        # The byte before tells whether a line begins at `start`.
        first, skip_before = (start - 1, part[1]) if part and start else (0, 0)
        with CountedFile(path, counts, options, start) as file:
            chunks = iter(lambda: file.read(chunk_bytes), b"")
            if any_encoding:
                chunks = _without_utf16(path, chunks)
            runs = _whole_lines(path, chunks, options.max_line_bytes, first, skip_before)
            for offset, data in _lines_of_part(runs, part, is_border) if part else runs:
                if any_encoding:
                    text = "".join(map(_utf8_or_latin1, data.splitlines(keepends=True)))
                else:
                    text = decoded(data, path, counts)
                if offset == 0:
                    text = text.removeprefix(_BOM)
                if not text:
                    continue
                if "\r" in text:
                    text = text.replace("\r\n", "\n").replace("\r", "\n")
                lines = text.split("\n")
                if not lines[-1]:
                    lines.pop()
                yield Block(number + 1, lines, offset, data)
                number += len(lines)
                counts.lines += len(lines)
    except _LineTooLongError:
        raise UserError(
            f"{path}:{line(number + 1)}: the line is longer than {options.max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except BrokenStreamError as error:
        raise error.at(path, f"after line {line(number)}") from None
    if number == 0 and not start:
        counts.empty_files.append(path)


class _LineTooLongError(Exception):
    """An error that `iter_blocks`, which knows the line's number, turns into a `UserError`."""


def _whole_lines(
    path: str, chunks: Iterator[bytes], max_line_bytes: int, offset: int, skip_before: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, run of whole lines) of the chunks of a file; the first begins at `offset`.

    If `skip_before` is not 0, all up to the end of the first line is left out, and all of the file
    if no line has ended by that byte.
    """
    pending: list[bytes] = []
    pending_bytes = 0
    begin = 0
    skip_newline = False
    for chunk in chunks:
        zero = chunk.find(b"\0")
        # UTF-16 of, e.g., Chinese has no NUL byte and is recognised by its first bytes.
        if offset == 0 and chunk.startswith(UTF16_BOMS):
            raise UserError(f"{path}: is UTF-16 text, by its first bytes; convert it to UTF-8 text")
        if zero >= 0:
            raise UserError(
                f"{path}: looks like a binary or UTF-16 file (NUL byte at byte {offset + zero});"
                " convert it to UTF-8 text"
            )
        here, offset = offset, offset + len(chunk)
        # A \r that ended the last chunk has ended its line already.
        if skip_newline and chunk.startswith(b"\n"):
            chunk, here = chunk[1:], here + 1
        skip_newline = chunk.endswith(b"\r")
        if skip_before:
            ended = _LINE_END.search(chunk)
            if not ended and offset < skip_before:
                continue
            if not ended:
                return
            skip_before = 0
            chunk, here = chunk[ended.end() :], here + ended.end()
        first = min((at for at in map(chunk.find, (b"\n", b"\r")) if at >= 0), default=len(chunk))
        if pending_bytes + first > max_line_bytes:
            raise _LineTooLongError
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not pending:
            begin = here
        if end:
            yield begin, b"".join([*pending, chunk[:end]])
            pending, pending_bytes = [], 0
            begin = here + end
        if end < len(chunk):
            pending.append(chunk[end:])
            pending_bytes += len(chunk) - end
    if pending:
        yield begin, b"".join(pending)


def _lines_of_part(
    runs: Iterator[tuple[int, bytes]], part: Part, is_border: Callable[[bytes], bool]
) -> Iterator[tuple[int, bytes]]:
    """Yields the runs of lines that belong to a part; `runs` begin at the part's start."""

    def border(data: bytes, begin: int) -> int | None:
        """Returns where the first border line at `begin` or after it begins in `data`."""
        at = 0
        for line in data.splitlines(keepends=True):
            if at >= begin and is_border(line):
                return at
            at += len(line)
        return None

    start, stop = part
    inside = start == 0
    for offset, data in runs:
        if not inside:
            if offset >= stop:
                return
            at = border(data, 0)
            if at is None:
                continue
            inside, offset, data = True, offset + at, data[at:]
        if offset + len(data) > stop:
            at = border(data, stop - offset)
            if at is not None:
                if at > 0:
                    yield offset, data[:at]
                return
        yield offset, data


def _without_utf16(path: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the bytes, as UTF-8 if they begin with the byte order mark of UTF-16."""
    head = next(chunks, b"")
    if len(head) == 1:
        head += next(chunks, b"")
    chunks = itertools.chain([head], chunks)
    if head.startswith(UTF16_BOMS):
        try:
            yield from (text.encode() for text in codecs.iterdecode(chunks, "utf-16"))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: no UTF-16 text ({error.reason}); convert it to UTF-8 text"
            ) from None
    yield from chunks


def decoded(data: bytes, path: str, counts: Counts) -> str:
    """Returns bytes of a file as text; bytes that are not UTF-8 become U+FFFD and are counted."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
    # The file may hold U+FFFD of its own, which is good UTF-8.
    counts.add_not_utf8(path, text.count("\ufffd") - data.count("\ufffd".encode()))
    return text


def _utf8_or_latin1(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        # TREC's questions are Latin-1; any bytes can be read as that.
        return line.decode("latin-1")
