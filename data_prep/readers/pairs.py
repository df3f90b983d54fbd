"""Sources of pairs: aligned files of lines, tables, translation memories, labelled pairs."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from data_prep.readers import nli, tmx
from data_prep.readers.decoding import iter_lines
from data_prep.readers.document import ReadOptions
from data_prep.readers.pair import Pair, one_space
from data_prep.readers.paths import is_file
from data_prep.readers.report import ReadReport
from official_cmlm.errors import UserError

FORMATS = ("lines", "moses", "tsv", "tmx", "nli")
# Formats of which one file is a whole source.
TABLES = ("tsv", "nli")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class PairSource:
    """Where pairs of one kind come from.

    Attributes:
      paths: two files of which line i of one belongs to line i of the other, or one file.
      languages: language of the first and of the second text.
      form: of one file, "tsv", "tmx" or "nli".
    """

    paths: tuple[str, ...]
    languages: tuple[str, str]
    form: str = "tsv"

    @property
    def name(self) -> str:
        """The source's files, for messages."""
        return ",".join(self.paths)

    def read(self, report: ReadReport, header: bool, options: ReadOptions) -> Iterator[Pair]:
        """Yields the pairs in order.

        Args:
          report: counts what is read.
          header: leave out the first line of a table.
          options: the limits of lines and of what a file may expand to.

        Raises:
          UserError: for files of different lengths, a line of a table without two or three
            columns, and as the readers `tmx` and `nli` do.
        """
        if len(self.paths) == 2:
            yield from self._aligned(report, options)
        elif self.form == "tsv":
            yield from self._table(report, header, options)
        else:
            read = {"tmx": tmx.read, "nli": nli.read}[self.form]
            yield from read(self.paths[0], self.languages, options, report)

    def _aligned(self, report: ReadReport, options: ReadOptions) -> Iterator[Pair]:
        limits = (options.max_line_bytes, options.max_expanded_bytes)
        first, second = (iter_lines(path, report, *limits) for path in self.paths)
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
            texts = (one_space(text), one_space(right[1]))
            yield Pair(texts, self.languages, None, f"{self.paths[0]}:{number}")

    def _table(self, report: ReadReport, header: bool, options: ReadOptions) -> Iterator[Pair]:
        (path,) = self.paths
        limits = (options.max_line_bytes, options.max_expanded_bytes)
        for number, line in iter_lines(path, report, *limits):
            if header and number == 1:
                continue
            cells = line.split("\t")
            if len(cells) not in (2, 3):
                raise UserError(
                    f"{path}:{number}: {len(cells)} columns; a table of pairs has two texts and, "
                    "if there is one, a label, with tabs between"
                )
            label = cells[2].strip() if len(cells) == 3 else None
            texts = (one_space(cells[0]), one_space(cells[1]))
            yield Pair(texts, self.languages, label, f"{path}:{number}")


def sources(paths: list[str], languages: list[str], form: str) -> list[PairSource]:
    """The sources that the flags name.

    Args:
      paths: for `lines` two files a source; for `moses` what the names of two files begin with,
        `corpus` for `corpus.en` and `corpus.de` (each also with .gz or .zst); else one file.
      languages: one tag a path; for a table `en`, both texts, or `en-de`, the first and the
        second; for `moses` and `tmx` `en-de`.
      form: one of `FORMATS`.

    Raises:
      UserError: if the numbers do not fit, or a file of `moses` is not there.
    """
    if len(paths) != len(languages):
        raise UserError(
            f"--languages names {len(languages)} languages for {len(paths)} files of --input; "
            "give one for each file, in the same order"
        )
    if form == "lines":
        if len(paths) % 2:
            raise UserError(
                f"--input names {len(paths)} files; with --format=lines every two belong together"
            )
        return [
            PairSource((paths[i], paths[i + 1]), (languages[i], languages[i + 1]))
            for i in range(0, len(paths), 2)
        ]
    for tag in languages if form in ("moses", "tmx") else ():
        if "-" not in tag:
            raise UserError(
                f"--languages={tag}: with --format={form} name two languages, e.g. en-de"
            )
    both = [(path, _both(tag)) for path, tag in zip(paths, languages)]
    if form == "moses":
        return [PairSource(tuple(_moses(path, tag) for tag in tags), tags) for path, tags in both]
    return [PairSource((path,), tags, form) for path, tags in both]


def _moses(prefix: str, language: str) -> str:
    names = [f"{prefix}.{language}{ending}" for ending in ("", ".gz", ".zst")]
    for name in names:
        if is_file(name):
            return name
    raise UserError(
        f"{names[0]}: no such file, nor with .gz or .zst; check --input and --languages"
    )


def _both(tag: str) -> tuple[str, str]:
    first, dash, second = tag.partition("-")
    return (first, second) if dash else (tag, tag)
