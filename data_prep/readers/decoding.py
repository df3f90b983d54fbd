"""Files of UTF-8 text, plain or compressed, as numbered lines in bounded memory."""

import os
from collections.abc import Iterator

from data_prep.readers.document import DEFAULT_MAX_EXPANDED_BYTES, DEFAULT_MAX_LINE_BYTES
from data_prep.readers.opening import BrokenStreamError, ExpandedFile
from data_prep.readers.report import ReadReport
from official_cmlm.errors import UserError

CHUNK_BYTES = 1 << 20
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()


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
    for number, lines in blocks:
        yield from enumerate(lines, number)


def iter_blocks(
    path: str | os.PathLike[str],
    report: ReadReport,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[tuple[int, list[str]]]:
    r"""Yields the lines of a file, many at a time.

    Gzip and Zstandard are told by their first bytes, not by the file's name. Lines end with \n,
    \r\n or a lone \r; a byte order mark is dropped; bytes that are not UTF-8 become
    U+FFFD and are counted.

    Args:
      path: the file.
      report: counts what is read.
      max_line_bytes: the longest line allowed, in bytes without its end. No more than this and
        one chunk is in memory.
      max_expanded_bytes: see `opening.ExpandedFile`.
      chunk_bytes: bytes read at a time.

    Yields:
      (number of the first line, from 1, lines without their ends)

    Raises:
      UserError: no such file, a directory, a broken or exploding compressed stream, a NUL byte,
        UTF-16, a line too long.
    """
    path = os.fspath(path)
    number = 0
    # Only the line that began in an earlier chunk can be longer than a chunk, so with chunks no
    # longer than the limit that is the only line to measure.
    chunk_bytes = min(chunk_bytes, max_line_bytes)
    try:
        with ExpandedFile(path, report, max_expanded_bytes) as file:
            chunks = iter(lambda: file.read(chunk_bytes), b"")
            for text in _blocks(path, chunks, report, max_line_bytes):
                if number == 0:
                    text = text.removeprefix(_BOM)
                if not text:
                    continue
                if "\r" in text:
                    text = text.replace("\r\n", "\n").replace("\r", "\n")
                lines = text.split("\n")
                if not lines[-1]:
                    lines.pop()
                yield number + 1, lines
                number += len(lines)
                report.lines += len(lines)
    except _LineTooLongError:
        raise UserError(
            f"{path}:{number + 1}: the line is longer than {max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except BrokenStreamError as error:
        raise error.at(path, f"after line {number}") from None
    if number == 0:
        report.empty_files.append(path)


class _LineTooLongError(Exception):
    """Caught where the line's number is known."""


def _blocks(
    path: str, chunks: Iterator[bytes], report: ReadReport, max_line_bytes: int
) -> Iterator[str]:
    """Yields decoded runs of whole lines."""
    pending: list[bytes] = []
    pending_bytes = 0
    offset = 0
    skip_newline = False
    for chunk in chunks:
        zero = chunk.find(b"\0")
        # Without a NUL byte in sight, UTF-16 of Chinese, say, is told by its first bytes.
        if offset == 0 and chunk.startswith(_UTF16_BOMS):
            raise UserError(f"{path}: is UTF-16 text, by its first bytes; convert it to UTF-8 text")
        if zero >= 0:
            raise UserError(
                f"{path}: looks like a binary or UTF-16 file (NUL byte at byte {offset + zero});"
                " convert it to UTF-8 text"
            )
        offset += len(chunk)
        # A \r that ended the last chunk has ended its line already.
        if skip_newline and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        skip_newline = chunk.endswith(b"\r")
        first = min((at for at in map(chunk.find, (b"\n", b"\r")) if at >= 0), default=len(chunk))
        if pending_bytes + first > max_line_bytes:
            raise _LineTooLongError
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if end:
            yield _decode(path, b"".join([*pending, chunk[:end]]), report)
            pending, pending_bytes = [], 0
        if end < len(chunk):
            pending.append(chunk[end:])
            pending_bytes += len(chunk) - end
    if pending:
        yield _decode(path, b"".join(pending), report)


def _decode(path: str, block: bytes, report: ReadReport) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError:
        text = block.decode(errors="replace")
    # The file may hold U+FFFD of its own, which is good UTF-8.
    report.add_not_utf8(path, text.count(_REPLACEMENT) - block.count(_REPLACEMENT_BYTES))
    return text
