"""Plain text files as documents."""

from collections.abc import Iterable, Iterator

from data_prep.readers.decoding import ReadReport, iter_lines
from data_prep.readers.document import Document, ReadOptions


def read(path: str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """Yields the documents of a text file, in order, with ids `path#0`, `path#1`, ….

    A document longer than `options.max_document_bytes` comes in pieces, each marked as
    continuing the one before; between paragraphs where it can be, else between lines.

    Raises:
      UserError: as `decoding.iter_lines` does.
    """
    for number, (paragraphs, continues) in enumerate(_pieces(path, options, report)):
        report.documents += 1
        yield Document(f"{path}#{number}", options.language, paragraphs, continues)


def split_paragraphs(text: str, lines: str) -> list[str]:
    """The paragraphs of a text already in memory; `lines` as in `ReadOptions`."""
    assembler = _Assembler(lines == "wrapped")
    # Not `str.splitlines`, which also splits at form feeds and at U+2028.
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        assembler.add(line.strip())
    return assembler.take_all()


def normalise_space(texts: Iterable[str]) -> list[str]:
    """The texts with every run of white space made one space, without those left empty."""
    return [text for text in (" ".join(text.split()) for text in texts) if text]


class _Assembler:
    """Collects lines into paragraphs."""

    def __init__(self, wrapped: bool) -> None:
        self._wrapped = wrapped
        self._closed: list[str] = []
        self._open: list[str] = []
        self.bytes = 0

    def add(self, line: str) -> None:
        """Adds a line without white space at its ends; an empty one ends the paragraph."""
        if line:
            self._open.append(line)
            # Encoding a line of ASCII to count its bytes would slow down the commonest case.
            self.bytes += len(line) if line.isascii() else len(line.encode())
            if self._wrapped:
                return
        if self._open:
            # White space is normalised once a paragraph; once a line takes twice as long.
            self._closed.append(" ".join(" ".join(self._open).split()))
            self._open = []

    def take_all(self) -> list[str]:
        """Takes every paragraph, ending the open one."""
        self.add("")
        taken, self._closed, self.bytes = self._closed, [], 0
        return taken

    def take_some(self) -> list[str]:
        """Takes the complete paragraphs if there are any, else what there is of the open one."""
        if not self._closed:
            return self.take_all()
        taken, self._closed = self._closed, []
        self.bytes = sum(len(line.encode()) for line in self._open)
        return taken


def _pieces(
    path: str, options: ReadOptions, report: ReadReport
) -> Iterator[tuple[list[str], bool]]:
    by_blank_line = options.documents_by == "blank_line"
    max_bytes = options.max_document_bytes
    assembler = _Assembler(options.lines == "wrapped")
    continues = False
    for _, raw in iter_lines(path, report, options.max_line_bytes):
        line = raw.strip()
        # More than once, as what is left of an open paragraph may be too long by itself. The
        # first test is cheap and never too small: a character has four bytes at most.
        while line and assembler.bytes + 4 * len(line) > max_bytes:
            if assembler.bytes + len(line.encode()) <= max_bytes or not assembler.bytes:
                break
            yield assembler.take_some(), continues
            continues = True
        if not line and by_blank_line:
            if paragraphs := assembler.take_all():
                yield paragraphs, continues
            continues = False
        else:
            assembler.add(line)
    if paragraphs := assembler.take_all():
        yield paragraphs, continues
