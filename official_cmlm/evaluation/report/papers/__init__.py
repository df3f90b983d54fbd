"""The papers' tables, copied as printed, with the scores that belong in their columns.

Each `*.json` beside this file has the tables of one paper. A column's `id` is a score of a suite,
`task/metric`; several ids separated by `|` mean the first that was scored; `task/metric - 79.1` is
the difference to a printed value; `=mean` is the mean of the row's other columns; null is a figure
that no suite computes. A `*` in an id is replaced by each of the table's `variants` in turn, which
gives a row each: for a protocol that the paper does not state, every candidate is shown.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from official_cmlm.common.errors import UserError


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
      paper: short name of the paper.
      table: its number in the paper, e.g. `Table 2`.
      caption: what it shows.
      suite: the suite that computes its figures.
      protocol: the protocol as far as the paper states it.
      columns: (the paper's heading, id of the score or None).
      rows: (model, one value or None per column), as printed.
      variants: (label of the row, replacement of `*` in ids).
      scale: factor from printed values to the unit of the suite's scores.
      decimals: shown, after scaling.
      ablation: whether it compares variants of one model.
    """

    paper: str
    table: str
    caption: str
    suite: str
    protocol: str
    columns: Sequence[tuple[str, str | None]]
    rows: Sequence[tuple[str, list[float | None]]]
    variants: Sequence[tuple[str, str]] = (("", ""),)
    scale: float = 1.0
    decimals: int = 1
    ablation: bool = False


@functools.cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Returns all tables, in the order of the files and of the tables in each file."""
    tables = []
    for path in sorted(Path(__file__).parent.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for entry in document["tables"]:
            columns = [(column["label"], column["id"]) for column in entry.pop("columns")]
            rows = [(row["model"], row["values"]) for row in entry.pop("rows")]
            tables.append(PaperTable(document["paper"], columns=columns, rows=rows, **entry))
    return tuple(tables)


def own_values(
    table: PaperTable, scores: Mapping[str, float], variant: str = ""
) -> list[float | None]:
    """Returns an encoder's value for each column of a table; None where it was not scored.

    `scores` has values by `task/metric`; `variant` takes the place of `*` in ids.
    """
    values: list[float | None] = []
    for _, column in table.columns:
        column, _, subtracted = (column or "").replace("*", variant).partition(" - ")
        ids = column.split("|")
        hits = [scores[i] for i in ids if i in scores]
        values.append(hits[0] - float(subtracted or 0) if hits else None)
    others = [value for value, (_, column) in zip(values, table.columns) if column != "=mean"]
    mean = sum(others) / len(others) if None not in others else None
    return [
        mean if column == "=mean" else value for value, (_, column) in zip(values, table.columns)
    ]


def row_values(paper: str, table: str, row: str) -> dict[str, float]:
    """Returns `suite/task/metric` -> the printed figure of a row, in the unit of our scores.

    Raises:
      UserError: for an unknown table or row.
    """
    for one in paper_tables():
        if (one.paper, one.table) == (paper, table) and row in dict(one.rows):
            break
    else:
        raise UserError(f"{paper}, {table}: no such table, or none with the row {row!r}")
    values: dict[str, float] = {}
    for _, variant in one.variants:
        for (_, column), printed in zip(one.columns, dict(one.rows)[row]):
            for score in (column or "").replace("*", variant).split("|"):
                if "/" in score and printed is not None:
                    values.setdefault(f"{one.suite}/{score}", printed * one.scale)
    return values
