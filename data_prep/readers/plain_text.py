"""Files of text: their lines, in bounded memory, and the documents of plain text."""

import codecs
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import (
    UTF16_BOMS,
    BrokenStreamError,
    ExpandedFile,
)

from ..counts import Counts
from .document import Document, ReadOptions, one_space

CHUNK_BYTES = 1 << 20
_BOM = "\ufeff"


class CountedFile(ExpandedFile):
    """The bytes of a file, expanded and counted."""

    bomb_remedy = "leave it out, or raise --max_expanded_mb if it is to be trusted"

    def __init__(self, path: str, counts: Counts, options: ReadOptions) -> None:
        counts.files += 1
        super().__init__(path, options.max_expanded_bytes, options.directory)
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
      number: number of the first line, from 1.
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
      any_encoding: whether UTF-16 with a byte order mark is read too, and a line that is not UTF-8
        as Latin-1.

    Raises:
      UserError: no such file, a directory, a broken or exploding compressed stream, a NUL byte,
        UTF-16, a line too long.
    """
    number = 0
    # Only the line that began in an earlier chunk can be longer than a chunk, so with chunks no
    # longer than the limit that is the only line to measure.
    chunk_bytes = min(chunk_bytes, options.max_line_bytes)
    try:
        with CountedFile(path, counts, options) as file:
            chunks = iter(lambda: file.read(chunk_bytes), b"")
            if any_encoding:
                chunks = _without_utf16(path, chunks)
            for offset, data in _whole_lines(path, chunks, options.max_line_bytes):
                if any_encoding:
                    text = "".join(map(_utf8_or_latin1, data.splitlines(keepends=True)))
                else:
                    text = decode_text(data, path, counts)
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
            f"{path}:{number + 1}: the line is longer than {options.max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except BrokenStreamError as error:
        raise error.at(path, f"after line {number}") from None
    if number == 0:
        counts.empty_files.append(path)


class _LineTooLongError(Exception):
    """An error that `iter_blocks`, which knows the line's number, turns into a `UserError`."""


def _whole_lines(
    path: str, chunks: Iterator[bytes], max_line_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, run of whole lines) of the chunks of a file."""
    pending: list[bytes] = []
    pending_bytes = 0
    begin = offset = 0
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


def decode_text(data: bytes, path: str, counts: Counts) -> str:
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


def read(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields the documents of a text file, in order, with ids `path#BYTE`, where they begin.

    A document longer than `options.max_document_bytes` comes in pieces with ids `path#BYTE+1` and
    so on, each marked as continuing the one before. It is cut between paragraphs where that is
    possible, else between lines.

    Raises:
      UserError: as `iter_blocks` does.
    """
    piece = 0
    for offset, paragraphs, continues in _pieces(path, options, counts):
        piece = piece + 1 if continues else 0
        name = f"{path}#{offset}+{piece}" if piece else f"{path}#{offset}"
        yield Document(name, options.language, paragraphs, continues)


def split_paragraphs(text: str, lines: str) -> list[str]:
    """Returns the paragraphs of a text in memory; `lines` as in `ReadOptions`."""
    assembler = _Assembler(lines == "wrapped")
    # `str.splitlines` would also split at form feeds and at U+2028.
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        assembler.add(line.strip())
    return assembler.take_all()


def normalise_space(texts: Iterable[str]) -> list[str]:
    """Returns the texts with every run of white space made one space, without empty ones."""
    return list(filter(None, map(one_space, texts)))


class _Assembler:
    """A collector of lines into paragraphs."""

    def __init__(self, wrapped: bool) -> None:
        self._wrapped = wrapped
        self._closed: list[str] = []
        self._open: list[str] = []
        self.bytes = self._open_bytes = 0

    def add(self, line: str) -> None:
        """Adds a line without white space at its ends; an empty one ends the paragraph."""
        if line:
            self._open.append(line)
            # Encoding a line of ASCII to count its bytes would slow down the commonest case.
            self._count(len(line) if line.isascii() else len(line.encode()))
            if self._wrapped:
                return
        if self._open:
            # White space is normalised once a paragraph; once a line would take twice as long. Most
            # paragraphs have single spaces already, and looking costs less than splitting.
            text = self._open[0] if len(self._open) == 1 else " ".join(self._open)
            if "  " in text or not text.isprintable():
                text = one_space(text)
            self._closed.append(text)
            self._open, self._open_bytes = [], 0

    def add_run(self, lines: list[str], text: str) -> None:
        """Adds several lines, none of them empty; `text` is all of them, joined by one space."""
        if not self._wrapped:
            for line in lines:
                self.add(line)
            return
        self._open.append(text)
        # The spaces are not counted, so that it does not matter where runs are divided.
        self._count((len(text) if text.isascii() else len(text.encode())) - len(lines) + 1)

    def take_all(self) -> list[str]:
        """Takes every paragraph, ending the open one."""
        self.add("")
        taken, self._closed, self.bytes = self._closed, [], 0
        return taken

    def take_some(self) -> list[str]:
        """Takes the complete paragraphs if there are any, else the lines of the open one."""
        if not self._closed:
            return self.take_all()
        taken, self._closed = self._closed, []
        self.bytes = self._open_bytes
        return taken

    def _count(self, size: int) -> None:
        self.bytes += size
        self._open_bytes += size


def _pieces(
    path: str, options: ReadOptions, counts: Counts
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields (byte at which the document begins, paragraphs, whether it is not the first piece)."""
    by_blank_line = options.documents_by == "blank_line"
    max_bytes = options.max_document_bytes
    assembler = _Assembler(options.lines == "wrapped")
    continues = inside = False
    begin = 0
    for block, at, run in _runs(path, options, counts):
        if not run:
            if not by_blank_line:
                assembler.add("")
                continue
            if paragraphs := assembler.take_all():
                yield begin, paragraphs, continues
            continues = inside = False
            continue
        if options.documents_by == "line":
            for number, line in enumerate(run):
                yield int(block.starts[at + number]), normalise_space([line]), False
            continue
        if by_blank_line and not inside:
            begin, inside = int(block.starts[at]), True
        text = " ".join(run)
        # This estimate is cheap and never too small: a character has four bytes at most.
        if assembler.bytes + 4 * len(text) <= max_bytes:
            assembler.add_run(run, text)
            continue
        for line in run:
            # This may repeat, as the rest of an open paragraph may be too long on its own.
            while assembler.bytes and assembler.bytes + len(line.encode()) > max_bytes:
                yield begin, assembler.take_some(), continues
                continues = True
            assembler.add(line)
    if paragraphs := assembler.take_all():
        yield begin, paragraphs, continues


def _runs(
    path: str, options: ReadOptions, counts: Counts
) -> Iterator[tuple[Block, int, list[str]]]:
    """Yields (block, index of the first line, run of lines); the run of an empty line is [].

    Lines are stripped. They come as runs, as a step of Python for each line would take longer than
    reading it.
    """
    for block in iter_blocks(path, counts, options):
        lines = [*map(str.strip, block.lines), ""]
        start, last = 0, len(lines) - 1
        while start <= last:
            stop = lines.index("", start)
            if stop > start:
                yield block, start, lines[start:stop]
            if stop < last:
                yield block, stop, []
            start = stop + 1
