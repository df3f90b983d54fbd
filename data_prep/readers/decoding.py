"""Files of UTF-8 text, plain or compressed, as numbered lines in bounded memory."""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator

import numpy as np

from official_cmlm.errors import UserError

from .document import DEFAULT_MAX_EXPANDED_BYTES, DEFAULT_MAX_LINE_BYTES, Part
from .files import UTF16_BOMS, BrokenStreamError, ExpandedFile
from .report import ReadReport

CHUNK_BYTES = 1 << 20
_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()
_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclasses.dataclass(frozen=True)
class Block:
    """Lines of a file that were read together.

    Attributes:
      number: of the first line, from 1; in a part of a file that of what was read.
      lines: without their ends.
      offset: of the first line in the file, decompressed, in bytes.
      data: the lines as they are in the file.
    """

    number: int
    lines: list[str]
    offset: int
    data: bytes

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where each line begins in the file, in bytes; one more where the last line has an end."""
        data = np.frombuffer(self.data, np.uint8)
        ends = data == ord("\n")
        if b"\r" in self.data:
            returns = data == ord("\r")
            # Of \r\n the last byte is the end.
            returns[:-1] &= ~ends[1:]
            ends |= returns
        return self.offset + np.append(0, np.flatnonzero(ends) + 1)


def iter_lines(
    path: str | os.PathLike[str],
    report: ReadReport,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of all lines of a file; see `iter_blocks`."""
    blocks = iter_blocks(path, report, max_line_bytes, max_expanded_bytes, chunk_bytes=chunk_bytes)
    for block in blocks:
        yield from enumerate(block.lines, block.number)


def iter_blocks(
    path: str | os.PathLike[str],
    report: ReadReport,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    directory: str = "",
    part: Part | None = None,
    is_border: Callable[[bytes], bool] = bool,
) -> Iterator[Block]:
    r"""Yields the lines of a file, many at a time.

    Gzip and Zstandard are recognised by their first bytes, not by the file's name. Lines end with
    \n, \r\n or a lone \r; a byte order mark is dropped; bytes that are not UTF-8 become U+FFFD and
    are counted.

    Args:
      path: the file.
      report: counts what is read.
      max_line_bytes: the longest line allowed, in bytes without its end. No more than this and
        one chunk is in memory.
      max_expanded_bytes: see `opening.ExpandedFile`.
      chunk_bytes: bytes read at a time.
      directory: what a relative path is relative to.
      part: bytes (start, stop) of a file that is plain. What is read begins with the first border
        line that begins at `start` or behind it, or with the file, and ends before the first one
        that begins at `stop` or behind it; so parts that tile the file's bytes tile its lines.
      is_border: whether a line, given with its end, is a border line; default: every line.

    Raises:
      UserError: no such file, a directory, a broken or exploding compressed stream, a NUL byte,
        UTF-16, a line too long.
    """
    path = os.fspath(path)
    start = part[0] if part else 0
    number = 0
    # Only the line that began in an earlier chunk can be longer than a chunk, so with chunks no
    # longer than the limit that is the only line to measure.
    chunk_bytes = min(chunk_bytes, max_line_bytes)

    def line(number: int) -> str:
        return f"{number} behind byte {start}" if start else str(number)

    try:
        with ExpandedFile(
            path, report, max_expanded_bytes, directory=directory, start=start
        ) as file:
            chunks = iter(lambda: file.read(chunk_bytes), b"")
            # The byte before tells whether a line begins at `start`.
            first, skip_before = (start - 1, part[1]) if part and start else (0, 0)
            runs = _whole_lines(path, chunks, max_line_bytes, first, skip_before)
            for offset, data in _of_part(runs, part, is_border) if part else runs:
                text = _decode(path, data, report)
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
                report.lines += len(lines)
    except _LineTooLongError:
        raise UserError(
            f"{path}:{line(number + 1)}: the line is longer than {max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except BrokenStreamError as error:
        raise error.at(path, f"after line {line(number)}") from None
    if number == 0 and not start:
        report.empty_files.append(path)


class _LineTooLongError(Exception):
    """Turned into a `UserError` where the line's number is known."""


def _whole_lines(
    path: str, chunks: Iterator[bytes], max_line_bytes: int, offset: int, skip_before: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, run of whole lines).

    Args:
      path: of the file, for messages.
      chunks: its bytes.
      max_line_bytes: the longest line allowed.
      offset: of the first chunk in the file.
      skip_before: if not 0, all up to the end of the first line is left out, and all if that end is
        not before this byte.
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


def _of_part(
    runs: Iterator[tuple[int, bytes]], part: Part, is_border: Callable[[bytes], bool]
) -> Iterator[tuple[int, bytes]]:
    """Of runs of lines that begin at the part's start or behind it, those that belong to it."""

    def border(data: bytes, begin: int) -> int | None:
        """Where the first border line at `begin` or behind it begins in some lines."""
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


def _decode(path: str, block: bytes, report: ReadReport) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError:
        text = block.decode(errors="replace")
    # The file may hold U+FFFD of its own, which is good UTF-8.
    report.add_not_utf8(path, text.count(_REPLACEMENT) - block.count(_REPLACEMENT_BYTES))
    return text
