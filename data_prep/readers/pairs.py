"""Readers of pairs: aligned files of lines, and tables of two texts and perhaps a label."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from data_prep.readers.decoding import ReadReport, iter_lines
from official_cmlm.errors import UserError

FORMATS = ("lines", "tsv")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that belong together.

    Attributes:
      texts: both, runs of white space made one space; either may be empty.
      languages: language of each.
      label: name of the pair's class, or None.
      where: `path:line` of the pair, for messages.
    """

    texts: tuple[str, str]
    languages: tuple[str, str]
    label: str | None
    where: str


@dataclass(frozen=True, slots=True)
class PairSource:
    """Where pairs of one kind come from.

    Attributes:
      paths: two files of which line i of one belongs to line i of the other, or one table.
      languages: language of the first and of the second text.
    """

    paths: tuple[str, ...]
    languages: tuple[str, str]

    def read(self, report: ReadReport, header: bool, max_line_bytes: int) -> Iterator[Pair]:
        """Yields the pairs in order.

        Args:
          report: counts what is read.
          header: leave out the first line of a table.
          max_line_bytes: a longer line is an error, in bytes.

        Raises:
          UserError: for files of different lengths, or a line of a table without two or three
            columns.
        """
        if len(self.paths) == 2:
            yield from self._aligned(report, max_line_bytes)
        else:
            yield from self._table(report, header, max_line_bytes)

    def _aligned(self, report: ReadReport, max_line_bytes: int) -> Iterator[Pair]:
        first, second = (iter_lines(path, report, max_line_bytes) for path in self.paths)
        for left, right in itertools.zip_longest(first, second, fillvalue=_MISSING):
            if left is _MISSING or right is _MISSING:
                short, number = (
                    (self.paths[0], right[0]) if left is _MISSING else (self.paths[1], left[0])
                )
                raise UserError(
                    f"{short}: ends before line {number}, {self.paths[0]} and {self.paths[1]} do "
                    "not align; both need the same number of lines"
                )
            number, text = left
            texts = (_one_space(text), _one_space(right[1]))
            yield Pair(texts, self.languages, None, f"{self.paths[0]}:{number}")

    def _table(self, report: ReadReport, header: bool, max_line_bytes: int) -> Iterator[Pair]:
        (path,) = self.paths
        for number, line in iter_lines(path, report, max_line_bytes):
            if header and number == 1:
                continue
            cells = line.split("\t")
            if len(cells) not in (2, 3):
                raise UserError(
                    f"{path}:{number}: {len(cells)} columns; a table of pairs has two texts and, "
                    "if there is one, a label, with tabs between"
                )
            label = cells[2].strip() if len(cells) == 3 else None
            texts = (_one_space(cells[0]), _one_space(cells[1]))
            yield Pair(texts, self.languages, label, f"{path}:{number}")


def sources(paths: list[str], languages: list[str], form: str) -> list[PairSource]:
    """The sources that the flags name.

    Args:
      paths: for `lines` two files a source, for `tsv` one.
      languages: one tag a file; for a table `en`, both texts, or `en-de`, the first and the second.
      form: one of `FORMATS`.

    Raises:
      UserError: if the numbers do not fit.
    """
    if len(paths) != len(languages):
        raise UserError(
            f"--languages names {len(languages)} languages for {len(paths)} files of --input; "
            "give one for each file, in the same order"
        )
    if form == "tsv":
        return [PairSource((path,), _both(tag)) for path, tag in zip(paths, languages)]
    if len(paths) % 2:
        raise UserError(
            f"--input names {len(paths)} files; with --format=lines every two belong together"
        )
    return [
        PairSource((paths[i], paths[i + 1]), (languages[i], languages[i + 1]))
        for i in range(0, len(paths), 2)
    ]


def _both(tag: str) -> tuple[str, str]:
    first, dash, second = tag.partition("-")
    return (first, second) if dash else (tag, tag)


def _one_space(text: str) -> str:
    return " ".join(text.split())
