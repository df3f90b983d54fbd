"""Files of text: their lines, in bounded memory, and the documents of plain text."""

import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import split_lines
from official_cmlm.common.text_files import (
    BUFFER_BYTES,
    UTF16_BOMS,
    BrokenStreamError,
    ExpandedFile,
    LineTooLongError,
    read_whole_lines,
)

from ..counts import Counts
from .document import Document, ReadOptions, one_space


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


def iter_lines(
    path: str, counts: Counts, options: ReadOptions, any_encoding: bool = False
) -> Iterator[tuple[int, int, str]]:
    """Yields (number from 1, byte at which it begins, line) of all lines; see `iter_blocks`."""
    number = 1
    for starts, lines in iter_blocks(path, counts, options, any_encoding):
        yield from zip(itertools.count(number), starts, lines)
        number += len(lines)


def iter_blocks(
    path: str, counts: Counts, options: ReadOptions, any_encoding: bool = False
) -> Iterator[tuple[list[int], list[str]]]:
    r"""Yields (byte at which each line begins, lines without their ends), of many lines at a time.

    Gzip and Zstandard are recognised by their first bytes, not by the file's name. Lines end with
    \n, \r\n or a lone \r; a byte order mark is dropped; bytes that are not UTF-8 become U+FFFD and
    are counted.

    Args:
      path: the file.
      counts: counts the file, its lines and bytes.
      options: the limits; no more than a line of `max_line_bytes` and what is read at once is in
        memory.
      any_encoding: whether UTF-16 with a byte order mark is read too, and a line that is not UTF-8
        as Latin-1.

    Raises:
      UserError: no such file, a directory, a broken or exploding compressed stream, a NUL byte,
        UTF-16, a line too long.
    """
    number = 0
    try:
        with io.BufferedReader(CountedFile(path, counts, options), BUFFER_BYTES) as file:
            read = file.read1
            # UTF-16 of, e.g., Chinese has no NUL byte and is recognised by its first bytes.
            if file.peek(2).startswith(UTF16_BOMS):
                if not any_encoding:
                    raise UserError(
                        f"{path}: is UTF-16 text, by its first bytes; convert it to UTF-8 text"
                    )
                read = _recode_utf16(file)
            for begin, data in read_whole_lines(path, read, options.max_line_bytes, True):
                # Bytes are split at \n, \r\n and \r only, as `split_lines` does with a text.
                pieces = data.splitlines(keepends=True)
                if any_encoding:
                    text = "".join(map(_utf8_or_latin1, pieces))
                else:
                    text = decode_text(data, path, counts)
                lines = split_lines(text.removeprefix("\ufeff") if begin == 0 else text)
                yield [*itertools.accumulate(map(len, pieces), initial=begin)], lines
                number += len(lines)
                counts.lines += len(lines)
    except LineTooLongError:
        raise UserError(
            f"{path}:{number + 1}: the line is longer than {options.max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except BrokenStreamError as error:
        raise error.at(path, f"after line {number}") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: no UTF-16 text ({error.reason}); convert it to UTF-8 text"
        ) from None
    if number == 0:
        counts.empty_files.append(path)


def _recode_utf16(file: io.BufferedReader) -> Callable[[int], bytes]:
    """Returns a function that reads a file of UTF-16 as UTF-8."""
    text = io.TextIOWrapper(file, "utf-16", newline="\n")
    return lambda size: text.read(size).encode()


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
    if options.documents_by == "line":
        for _, offset, line in iter_lines(path, counts, options):
            if text := one_space(line):
                yield Document(f"{path}#{offset}", options.language, [text], line=line)
        return
    piece = 0
    for offset, paragraphs, continues in _pieces(path, options, counts):
        piece = piece + 1 if continues else 0
        name = f"{path}#{offset}+{piece}" if piece else f"{path}#{offset}"
        yield Document(name, options.language, paragraphs, continues)


def split_paragraphs(text: str, lines: str) -> list[str]:
    """Returns the paragraphs of a text in memory; `lines` as in `ReadOptions`."""
    assembler = _Assembler(lines == "wrapped")
    for line in split_lines(text):
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

    def add(self, line: str, size: int = 0) -> None:
        """Adds a line without white space at its ends; an empty one ends the paragraph.

        `bytes` and `take_some` count its bytes, `size`.
        """
        if line:
            self._open.append(line)
            self.bytes += size
            self._open_bytes += size
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


def _pieces(
    path: str, options: ReadOptions, counts: Counts
) -> Iterator[tuple[int, list[str], bool]]:
    """Yields (byte at which the document begins, paragraphs, whether it is not the first piece)."""
    by_blank_line = options.documents_by == "blank_line"
    is_wrapped, max_bytes = options.lines == "wrapped", options.max_document_bytes
    assembler = _Assembler(is_wrapped)
    continues = inside = False
    begin = 0
    for offset, lines in _runs(path, options, counts):
        if not lines:
            if not by_blank_line:
                assembler.add("")
                continue
            if paragraphs := assembler.take_all():
                yield begin, paragraphs, continues
            continues = inside = False
            continue
        if by_blank_line and not inside:
            begin, inside = offset, True
        if is_wrapped:
            text = " ".join(lines)
            # The spaces are not counted, so that it does not matter where runs are divided.
            size = _count_bytes(text) - len(lines) + 1
            if assembler.bytes + size <= max_bytes:
                assembler.add(text, size)
                continue
        for line in lines:
            size = _count_bytes(line)
            # This may repeat, as the rest of an open paragraph may be too long on its own.
            while assembler.bytes and assembler.bytes + size > max_bytes:
                yield begin, assembler.take_some(), continues
                continues = True
            assembler.add(line, size)
    if paragraphs := assembler.take_all():
        yield begin, paragraphs, continues


def _runs(path: str, options: ReadOptions, counts: Counts) -> Iterator[tuple[int, list[str]]]:
    """Yields (byte at which it begins, lines) of each run of lines; that of an empty line is [].

    Lines are stripped. They come as runs, as a step of Python for each line would take longer than
    reading it.
    """
    for starts, block in iter_blocks(path, counts, options):
        lines = [*map(str.strip, block), ""]
        start, last = 0, len(lines) - 1
        while start <= last:
            stop = lines.index("", start)
            if stop > start:
                yield starts[start], lines[start:stop]
            if stop < last:
                yield starts[stop], []
            start = stop + 1


def _count_bytes(text: str) -> int:
    # Encoding a text of ASCII to count its bytes would slow down the commonest case.
    return len(text) if text.isascii() else len(text.encode())
