"""Inputs of pairs: aligned files of lines, tables, labels, hard negatives."""

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.input_files import is_file
from official_cmlm.common.languages import check_language_tag
from official_cmlm.common.text_files import parse_object, read_columns
from official_cmlm.records.pairs import scale_score

from ..counts import Counts
from . import tfds
from .document import Pair, ReadOptions, one_space
from .jsonl import mend_surrogates
from .plain_text import CountedFile, iter_lines

FORMATS = ("lines", "moses", "tsv", "table", "nli", "triples")
# Formats of which one file is a whole input.
TABLES = ("tsv", "table", "nli")
# Names of the columns of both texts and, where there is one, of a third cell.
_NLI, _TRIPLE = ("sentence1", "sentence2", "gold_label"), ("anchor", "positive", "negative")
_CONTENT = {
    "tsv": "a table of pairs has two texts and, if there is one, a label",
    "triples": "a table of triples has an anchor, a positive and, if there is one, a hard negative",
}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class PairInput:
    """A source of pairs of one kind.

    Attributes:
      paths: two files of which line i of one belongs to line i of the other, or one file or data
        set.
      languages: language of the first and of the second text.
      form: form of one file, "tsv", "table", "nli" or "triples"; "tfds" of a data set.
      columns: part of a pair -> the column of a "table", or the feature, that holds it: "first",
        "second" and, where there is one, "label", "negative" and "score".
      score_range: the scores that become 0 and 1.
    """

    paths: tuple[str, ...]
    languages: tuple[str, str]
    form: str = "tsv"
    columns: dict[str, str] = field(default_factory=dict)
    score_range: tuple[float, float] = (0.0, 1.0)

    @property
    def name(self) -> str:
        """The files' names, for messages."""
        return ",".join(self.paths)

    def read(self, counts: Counts, header: bool, options: ReadOptions) -> Iterator[Pair]:
        """Yields the pairs in order; `header` leaves out the first line of "tsv" and "triples".

        Raises:
          UserError: for files of different lengths, a row without its columns, and as `iter_lines`
            and `read_columns` do.
        """
        if len(self.paths) == 2:
            yield from self._read_aligned(counts, options)
        elif self.form in ("table", "tfds"):
            yield from self._read_table(counts, options)
        else:
            third = "negative" if self.form == "triples" else "label"
            for where, cells in self._cells(counts, header, options):
                yield self._pair(where, *cells[:2], **dict(zip([third], cells[2:])))

    def _pair(
        self,
        where: str,
        first: str,
        second: str,
        label: str | None = None,
        negative: str = "",
        score: float | None = None,
    ) -> Pair:
        texts = (one_space(first), one_space(second))
        label = None if label is None else label.strip()
        return Pair(texts, self.languages, label, where, one_space(negative) or None, score)

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
            yield self._pair(f"{self.paths[0]}:{left[0]}", left[2], right[2])

    def _read_table(self, counts: Counts, options: ReadOptions) -> Iterator[Pair]:
        (path,), negative = self.paths, self.columns.get("negative")
        texts = {part: name for part, name in self.columns.items() if part != "score"}
        score = self.columns.get("score")
        for where, row in self._rows(path, counts, options):
            # A row need not have a hard negative.
            if negative and row[negative] is None:
                row[negative] = ""
            parts = dict(zip(texts, _get_texts(row, list(texts.values()), path, where, counts)))
            share = (
                scale_score(row[score], f'{where}: "{score}"', *self.score_range) if score else None
            )
            yield self._pair(where, **parts, score=share)

    def _rows(
        self, path: str, counts: Counts, options: ReadOptions
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields (place, column or feature -> value) of a table or a data set."""
        columns = list(self.columns.values())
        if self.form == "tfds":
            yield from tfds.read_rows(path, columns, options, counts)
            return
        with io.BufferedReader(CountedFile(path, counts, options)) as file:
            yield from read_columns(path, file, columns)

    def _cells(
        self, counts: Counts, header: bool, options: ReadOptions
    ) -> Iterator[tuple[str, list[str]]]:
        """Yields (place, cells) of a file of lines: two texts, perhaps a label or a hard negative.

        Tables have tabs between their cells, and no quotes. The first line of NLI names its
        columns, in any order and among others. NLI and triples may be JSON lines: then the first
        line with text starts with {. A table of triples whose first text starts so is recognised by
        a tab in that line.
        """
        (path,) = self.paths
        names = {"nli": _NLI, "triples": _TRIPLE}.get(self.form, ())
        is_json: bool | None = None if names else False
        columns: list[str] = []
        for number, _, line in iter_lines(path, counts, options):
            where = f"{path}:{number}"
            if (names == _NLI or is_json) and not line.strip():
                continue
            if is_json is None and line.strip():
                # Tabs inside strings of JSON are escaped.
                is_json = line.lstrip().startswith("{") and (names == _NLI or "\t" not in line)
            if is_json:
                row = parse_object(line, where)
                has_third = names == _NLI or row.get("negative") is not None
                needed = names if has_third else names[:2]
                _check_names(list(row), needed, where, self.form)
                yield where, _get_texts(row, needed, path, where, counts)
                continue
            cells = line.split("\t")
            if names != _NLI:
                if header and number == 1:
                    continue
                if len(cells) not in (2, 3):
                    raise UserError(
                        f"{where}: {len(cells)} columns; {_CONTENT[self.form]}, with tabs between"
                    )
                yield where, cells
            elif not columns:
                columns = [cell.strip() for cell in cells]
                _check_names(columns, _NLI, where, self.form)
            elif len(cells) != len(columns):
                raise UserError(
                    f"{where}: {len(cells)} columns, but the first line names {len(columns)}"
                )
            else:
                yield where, [cells[columns.index(name)] for name in _NLI]


def _check_names(columns: list[str], needed: Sequence[str], where: str, form: str) -> None:
    for name in needed:
        if name not in columns:
            raise UserError(
                f"{where}: no {name!r}; --format={form} needs {', '.join(needed)}, in the first"
                " line of a table or in each object"
            )


def _get_texts(
    row: dict[str, Any], names: Sequence[str], path: str, where: str, counts: Counts
) -> list[str]:
    for name in names:
        if not isinstance(row[name], str):
            raise UserError(f'{where}: "{name}" is not of the right type; make it a string')
    return [mend_surrogates(row[name], path, counts) for name in names]


def inputs_of(
    paths: list[str],
    languages: list[str],
    form: str,
    columns: dict[str, str] | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
) -> list[PairInput]:
    """Returns the inputs that the flags name.

    Args:
      paths: for `lines` two files an input; for `moses` the common beginning of two files' names,
        `corpus` for `corpus.en` and `corpus.de` (each also with .gz or .zst); for `tfds` a data set
        with the prefix of its reader; else one file.
      languages: one tag a path; for a table `en`, both texts, or `en-de`, the first and the
        second; for `moses` `en-de`.
      form: one of `FORMATS`, or `tfds`.
      columns, score_range: the columns of `table` or features of `tfds`, and the scores, as in
        `PairInput`. Default for `tfds`: the features of both languages' names.

    Raises:
      UserError: the numbers do not fit, a tag is malformed, or a file of `moses` does not exist.
    """
    given, flag = ("data sets", "--tfds") if form == "tfds" else ("files", "--input")
    if len(paths) != len(languages):
        raise UserError(
            f"--languages names {len(languages)} languages for {len(paths)} {given} of {flag}; "
            "give one for each file, in the same order"
        )
    by_language = form == "tfds" and "first" not in (columns or {})
    for tag in languages:
        if (form == "moses" or by_language) and "-" not in tag:
            what = "--tfds and no --columns" if by_language else "--format=moses"
            raise UserError(f"--languages={tag}: with {what} name two languages, e.g. en-de")
    both = [(tag, tag) if form == "lines" else _divide_tag(tag) for tag in languages]
    for tag in itertools.chain.from_iterable(both):
        check_language_tag(tag, "--languages")
    if form == "moses":
        return [
            PairInput(tuple(_find_side(path, tag) for tag in tags), tags)
            for path, tags in zip(paths, both)
        ]
    if form != "lines":
        named = [{"first": a, "second": b} if form == "tfds" else {} for a, b in both]
        return [
            PairInput((path,), tags, form, features | (columns or {}), score_range)
            for path, tags, features in zip(paths, both, named)
        ]
    if len(paths) % 2:
        raise UserError(
            f"--input names {len(paths)} files; with --format=lines every two belong together"
        )
    return [
        PairInput((paths[i], paths[i + 1]), (languages[i], languages[i + 1]))
        for i in range(0, len(paths), 2)
    ]


def _find_side(prefix: str, language: str) -> str:
    names = [f"{prefix}.{language}{ending}" for ending in ("", ".gz", ".zst")]
    for name in names:
        if is_file(name):
            return name
    raise UserError(
        f"{names[0]}: no such file, nor with .gz or .zst; check --input and --languages"
    )


def _divide_tag(tag: str) -> tuple[str, str]:
    first, dash, second = tag.partition("-")
    return (first, second) if dash else (tag, tag)
