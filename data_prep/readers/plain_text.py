"""Plain text files as documents."""

from collections.abc import Iterable, Iterator

from ..counts import Counts
from .document import Document, ReadOptions, one_space
from .lines import Block, iter_blocks


def read(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields the documents of a text file, in order, with ids `path#BYTE`, where they begin.

    A document longer than `options.max_document_bytes` comes in pieces with ids `path#BYTE+1` and
    so on, each marked as continuing the one before. It is cut between paragraphs where that is
    possible, else between lines.

    Raises:
      UserError: as `lines.iter_blocks` does.
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
