"""Files of UTF-8 text, plain or gzip, as numbered lines in bounded memory."""

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from data_prep.readers.document import DEFAULT_MAX_LINE_BYTES
from official_cmlm.errors import UserError

CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()


@dataclass(slots=True)
class ReadReport:
    """What was read so far; readers add to it as they go.

    Attributes:
      files: files opened.
      lines: lines read.
      bytes: bytes of text read, after decompression.
      documents: documents (or pieces of documents) yielded.
      empty_files: paths of files without any text.
      empty_documents: documents dropped because they held no text.
      not_utf8: number of byte sequences replaced by U+FFFD, by path; clean files are absent.
    """

    files: int = 0
    lines: int = 0
    bytes: int = 0
    documents: int = 0
    empty_files: list[str] = field(default_factory=list)
    empty_documents: int = 0
    not_utf8: dict[str, int] = field(default_factory=dict)

    def add_not_utf8(self, path: str, count: int) -> None:
        """Counts `count` replaced byte sequences of `path`."""
        if count:
            self.not_utf8[path] = self.not_utf8.get(path, 0) + count

    def warnings(self) -> list[str]:
        """One line for each file that was not quite as it should be."""
        lines = [f"{path}: the file is empty" for path in self.empty_files]
        for path, count in self.not_utf8.items():
            what = "byte sequence was" if count == 1 else "byte sequences were"
            lines.append(f"{path}: {count} {what} not UTF-8 and {what.split()[-1]} replaced")
        return lines


def iter_lines(
    path: str | os.PathLike[str],
    report: ReadReport,
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[tuple[int, str]]:
    r"""Yields the lines of a file, each with its number.

    Gzip is told by its first bytes, not by the file's name. Lines end with \n, \r\n or a lone
    \r; a byte order mark is dropped; bytes that are not UTF-8 become U+FFFD and are counted.

    Args:
      path: the file.
      report: counts what is read.
      max_line_bytes: the longest line allowed, in bytes without its end. No more than this and
        one chunk is in memory.
      chunk_bytes: bytes read at a time.

    Yields:
      (line number from 1, text without the line's end)

    Raises:
      UserError: no such file, a directory, a broken gzip stream, a NUL byte, a line too long.
    """
    path = os.fspath(path)
    report.files += 1
    number = 0
    # Only the line that began in an earlier chunk can be longer than a chunk, so with chunks no
    # longer than the limit that is the only line to measure.
    chunks = _chunks(path, min(chunk_bytes, max_line_bytes))
    try:
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
            yield from enumerate(lines, number + 1)
            number += len(lines)
            report.lines += len(lines)
    except _LineTooLongError:
        raise UserError(
            f"{path}:{number + 1}: the line is longer than {max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except EOFError:
        raise UserError(
            f"{path}: the gzip stream ends early after line {number}; fetch the file again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}: the gzip stream is corrupt after line {number} ({error});"
            " fetch the file again"
        ) from None
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
        if zero >= 0:
            raise UserError(
                f"{path}: looks like a binary or UTF-16 file (NUL byte at byte {offset + zero});"
                " convert it to UTF-8 text"
            )
        offset += len(chunk)
        report.bytes += len(chunk)
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


def _chunks(path: str, chunk_bytes: int) -> Iterator[bytes]:
    try:
        stream = open(path, "rb")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check --input") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; name the files in it") from None
    with stream:
        is_gzip = stream.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        source: BinaryIO = gzip.GzipFile(fileobj=stream) if is_gzip else stream
        # `read1` hands over what was decompressed before a stream breaks off, so that the line
        # named in the message is the right one.
        while chunk := source.read1(chunk_bytes):
            yield chunk
