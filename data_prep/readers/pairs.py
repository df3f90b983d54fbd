"""Inputs of pairs: aligned files of lines, tables, translation memories, labels, negatives."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from official_cmlm.errors import UserError
from official_cmlm.input_files import is_file
from official_cmlm.languages import check_language_tag

from ..counts import Counts
from . import tmx
from .document import Pair, ReadOptions, one_space
from .jsonl import mended, parse_object
from .lines import iter_lines

FORMATS = ("lines", "moses", "tsv", "tmx", "nli", "triples")
# Formats of which one file is a whole input.
TABLES = ("tsv", "nli")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class PairInput:
    """A source of pairs of one kind.

    Attributes:
      paths: two files of which line i of one belongs to line i of the other, or one file.
      languages: language of the first and of the second text.
      form: form of one file, "tsv", "tmx", "nli" or "triples".
    """

    paths: tuple[str, ...]
    languages: tuple[str, str]
    form: str = "tsv"

    @property
    def name(self) -> str:
        """The files' names, for messages."""
        return ",".join(self.paths)

    def read(self, counts: Counts, header: bool, options: ReadOptions) -> Iterator[Pair]:
        """Yields the pairs in order.

        Args:
          counts: counts what is read.
          header: leave out the first line of a table.
          options: the limits of lines and of decompression.

        Raises:
          UserError: for files of different lengths, a line of a table without two or three
            columns, and as `tmx.read`, `_read_nli` and `_read_triples` do.
        """
        if len(self.paths) == 2:
            yield from self._read_aligned(counts, options)
        elif self.form == "tsv":
            yield from self._read_table(counts, header, options)
        elif self.form == "triples":
            yield from _read_triples(self.paths[0], self.languages, options, counts, header)
        else:
            read = {"tmx": tmx.read, "nli": _read_nli}[self.form]
            yield from read(self.paths[0], self.languages, options, counts)

    def _read_aligned(self, counts: Counts, options: ReadOptions) -> Iterator[Pair]:
        first, second = (iter_lines(path, counts, options) for path in self.paths)
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

    def _read_table(self, counts: Counts, header: bool, options: ReadOptions) -> Iterator[Pair]:
        (path,) = self.paths
        for number, line in iter_lines(path, counts, options):
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


def pair_inputs(paths: list[str], languages: list[str], form: str) -> list[PairInput]:
    """Returns the inputs that the flags name.

    Args:
      paths: for `lines` two files an input; for `moses` the common beginning of two files' names,
        `corpus` for `corpus.en` and `corpus.de` (each also with .gz or .zst); else one file.
      languages: one tag a path; for a table `en`, both texts, or `en-de`, the first and the
        second; for `moses` and `tmx` `en-de`.
      form: one of `FORMATS`.

    Raises:
      UserError: the numbers do not fit, a tag is malformed, or a file of `moses` does not exist.
    """
    if len(paths) != len(languages):
        raise UserError(
            f"--languages names {len(languages)} languages for {len(paths)} files of --input; "
            "give one for each file, in the same order"
        )
    if form == "lines":
        for tag in languages:
            check_language_tag(tag, "--languages")
        if len(paths) % 2:
            raise UserError(
                f"--input names {len(paths)} files; with --format=lines every two belong together"
            )
        return [
            PairInput((paths[i], paths[i + 1]), (languages[i], languages[i + 1]))
            for i in range(0, len(paths), 2)
        ]
    for tag in languages if form in ("moses", "tmx") else ():
        if "-" not in tag:
            raise UserError(
                f"--languages={tag}: with --format={form} name two languages, e.g. en-de"
            )
    both = [(path, _both(tag)) for path, tag in zip(paths, languages)]
    for one in itertools.chain(*(tags for _, tags in both)):
        check_language_tag(one, "--languages")
    if form == "moses":
        return [PairInput(tuple(_moses(path, tag) for tag in tags), tags) for path, tags in both]
    return [PairInput((path,), tags, form) for path, tags in both]


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


_NLI = ("sentence1", "sentence2", "gold_label")


def _read_nli(
    path: str, languages: tuple[str, str], options: ReadOptions, counts: Counts
) -> Iterator[Pair]:
    """Yields a pair for each row, with its `gold_label`.

    JSON lines are told by the first byte of the first line, {. The first line of a table names
    its columns, in any order and among others; a cell is the text between two tabs, without quotes.

    Raises:
      UserError: as `lines.iter_lines` does; a field is missing; a row with another number of
        columns than the first line.
    """
    header: list[str] | None = None
    for number, line in iter_lines(path, counts, options):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if header is None:
            header = [] if line.startswith("{") else [cell.strip() for cell in line.split("\t")]
            if header:
                _check_nli(header, where)
                continue
        row = _cells(line, header, where) if header else parse_object(line, where)
        if not header:
            _check_nli(row, where)
            _check_strings(row, _NLI, where)
        first, second, label = (mended(row[field], path, counts) for field in _NLI)
        yield Pair((one_space(first), one_space(second)), languages, label.strip(), where)


def _cells(line: str, header: list[str], where: str) -> dict[str, str]:
    cells = line.split("\t")
    if len(cells) != len(header):
        raise UserError(f"{where}: {len(cells)} columns, but the first line names {len(header)}")
    return dict(zip(header, cells))


def _check_nli(names: Iterable[str], where: str) -> None:
    missing = [field for field in _NLI if field not in names]
    if missing:
        raise UserError(
            f"{where}: no {missing[0]!r}; --format=nli needs {', '.join(_NLI)}, in the"
            " first line of a table or in each object"
        )


def _check_strings(row: dict[str, object], fields: Iterable[str], where: str) -> None:
    for field in fields:
        if not isinstance(row[field], str):
            raise UserError(f'{where}: "{field}" is not of the right type; make it a string')


_TRIPLE = ("anchor", "positive", "negative")


def _read_triples(
    path: str,
    languages: tuple[str, str],
    options: ReadOptions,
    counts: Counts,
    header: bool = False,
) -> Iterator[Pair]:
    """Yields a pair for each row, with its hard negative if it has a third text.

    JSON lines are told by the first line with text, which starts with { and has no tab; their keys
    are `anchor`, `positive` and, if there is one, `negative`. Tables have these as their two or
    three columns, without quotes.

    Args:
      header: leave out the first line of a table.

    Raises:
      UserError: as `lines.iter_lines` does; a line of a table without two or three columns; an
        object without a text, or with one that is not a string.
    """
    is_json: bool | None = None
    for number, line in iter_lines(path, counts, options):
        where = f"{path}:{number}"
        if is_json is None and line.strip():
            # A table's first text may begin with { too; tabs inside strings of JSON are escaped.
            is_json = line.lstrip().startswith("{") and "\t" not in line
        if is_json:
            if not line.strip():
                continue
            cells = [mended(cell, path, counts) for cell in _triple(line, where)]
        elif header and number == 1:
            continue
        else:
            cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise UserError(
                f"{where}: {len(cells)} columns; a table of triples has an anchor, its positive "
                "and, if there is one, a hard negative, with tabs between"
            )
        first, second, third = (*map(one_space, cells), "")[:3]
        yield Pair((first, second), languages, None, where, third or None)


def _triple(line: str, where: str) -> list[str]:
    row = parse_object(line, where)
    for field in _TRIPLE[:2]:
        if field not in row:
            raise UserError(f"{where}: no {field!r}; --format=triples needs {', '.join(_TRIPLE)}")
    fields = _TRIPLE if row.get("negative") is not None else _TRIPLE[:2]
    _check_strings(row, fields, where)
    return [row[field] for field in fields]
