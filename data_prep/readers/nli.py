"""Files of natural language inference as SNLI and MultiNLI publish them: a table or JSON lines."""

from collections.abc import Iterator

from data_prep.readers.decoding import iter_lines
from data_prep.readers.document import ReadOptions
from data_prep.readers.jsonl import mended, parse_object
from data_prep.readers.pair import Pair, one_space
from data_prep.readers.report import ReadReport
from official_cmlm.errors import UserError

FIELDS = ("sentence1", "sentence2", "gold_label")


def read(
    path: str, languages: tuple[str, str], options: ReadOptions, report: ReadReport
) -> Iterator[Pair]:
    """Yields a pair for each row, with its `gold_label`.

    JSON lines are told by the first byte of the first line, {. The first line of a table names
    its columns, in any order and among others; a cell is what stands between tabs, without quotes.

    Raises:
      UserError: as `decoding.iter_lines` does; a field is missing; a row with another number of
        columns than the first line.
    """
    header: list[str] | None = None
    for number, line in iter_lines(
        path, report, options.max_line_bytes, options.max_expanded_bytes
    ):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        if header is None:
            header = [] if line.startswith("{") else [cell.strip() for cell in line.split("\t")]
            if header:
                _check(header, where)
                continue
        row = _cells(line, header, where) if header else _object(line, where)
        first, second, label = (mended(row[field], path, report) for field in FIELDS)
        yield Pair((one_space(first), one_space(second)), languages, label.strip(), where)


def _cells(line: str, header: list[str], where: str) -> dict[str, str]:
    cells = line.split("\t")
    if len(cells) != len(header):
        raise UserError(f"{where}: {len(cells)} columns, but the first line names {len(header)}")
    return dict(zip(header, cells))


def _object(line: str, where: str) -> dict[str, str]:
    row = parse_object(line, where)
    _check(row, where)
    for field in FIELDS:
        if not isinstance(row[field], str):
            raise UserError(f'{where}: "{field}" is not of the right type; make it a string')
    return row


def _check(names: object, where: str) -> None:
    missing = [field for field in FIELDS if field not in names]
    if missing:
        raise UserError(
            f"{where}: no {missing[0]!r}; --format=nli needs {', '.join(FIELDS)}, in the first line"
            " of a table or in each object"
        )
