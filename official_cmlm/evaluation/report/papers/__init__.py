"""The papers' tables, copied as printed, with the scores that belong in their columns.

Each `*.json` beside this file has the tables of one paper. A column's `id` is a score of a suite,
`task/metric`; several ids separated by `|` mean the first that was scored; `task/metric - 79.1` is
the difference to a printed value; `=mean` is the mean of the row's other columns; null is a figure
that no suite computes. A `*` in an id is replaced by each of the table's `variants` in turn, which
gives a row each: for a protocol that the paper does not state, every candidate is shown.

Below `orders` stand results that a paper states in words, such as those of a figure without printed
values: `row` is above (`sign` 1) or below (-1) `minus` in the scores `columns`.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from official_cmlm.common.errors import UserError

# Joins the ids of scores whose mean is compared.
MEAN_OF = " + "


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


@dataclasses.dataclass(frozen=True)
class Order:
    """A result that a paper states in words.

    Attributes:
      paper: short name of the paper.
      table: where it stands, e.g. `Figure 3`.
      row, minus: the two models.
      columns: ids of the scores that it is about, `suite/task/metric`.
      sign: 1 if `row` is above `minus`, -1 if it is below.
      text: the paper's words, and their section.
    """

    paper: str
    table: str
    row: str
    minus: str
    columns: Sequence[str]
    sign: int
    text: str


@functools.cache
def _read_files() -> tuple[tuple[PaperTable, ...], tuple[Order, ...]]:
    tables, orders = [], []
    for path in sorted(Path(__file__).parent.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for entry in document["tables"]:
            columns = [(column["label"], column["id"]) for column in entry.pop("columns")]
            rows = [(row["model"], row["values"]) for row in entry.pop("rows")]
            tables.append(PaperTable(document["paper"], columns=columns, rows=rows, **entry))
        orders += [Order(document["paper"], **entry) for entry in document.get("orders", ())]
    return tuple(tables), tuple(orders)


def paper_tables() -> tuple[PaperTable, ...]:
    """Returns all tables, in the order of the files and of the tables in each file."""
    return _read_files()[0]


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


@dataclasses.dataclass(frozen=True)
class PaperDifference:
    """Two rows of a paper's tables, by the names that the files beside this one have.

    Attributes:
      paper: short name of the paper.
      table: the table of `row`; or where an `Order` stands.
      row, minus: the models; the difference is the first's score minus the second's.
      minus_table: the table of `minus`. Default: that of `row`.
    """

    paper: str
    table: str
    row: str
    minus: str
    minus_table: str = ""

    def compute(self, ids: Sequence[str]) -> "Printed | None":
        """Returns the paper's difference in the first of several scores that both rows have.

        Args:
          ids: `suite/task/metric` of each score; or several joined by ` + `, whose mean is meant.

        Returns:
          None if the paper has no such figures.

        Raises:
          UserError: for an unknown table or row.
        """
        if order := self._find_order():
            where = f"{self.paper}, {self.table}: {order.text}"
            shared = [score for score in ids if score in order.columns]
            return Printed(order.sign, None, shared[0], where) if shared else None
        minus_table = self.minus_table or self.table
        first = _read_cells(self.paper, self.table, self.row)
        second = _read_cells(self.paper, minus_table, self.minus)
        for score in ids:
            parts = score.split(MEAN_OF)
            if all(part in first and part in second for part in parts):
                value, other = (fmean(row[part][1] for part in parts) for row in (first, second))
                labels = ", ".join(first[part][0] for part in parts)
                heading = f"mean of {labels}" if len(parts) > 1 else labels
                tables = " and ".join(dict.fromkeys([self.table, minus_table]))
                rows = f"{heading} of {self.row} and {self.minus} ({self.paper}, {tables})"
                where = f"{value:.5g} − {other:.5g}: {rows}"
                difference = value - other
                # Equal means of different figures may differ in their last bit.
                sign = (difference > 1e-9) - (difference < -1e-9)
                return Printed(sign, difference, score, where)
        return None

    def _find_order(self) -> Order | None:
        names = (self.paper, self.table, self.row, self.minus)
        orders = _read_files()[1]
        return next((o for o in orders if (o.paper, o.table, o.row, o.minus) == names), None)


@dataclasses.dataclass(frozen=True)
class Printed:
    """A paper's difference of two models.

    Attributes:
      sign: 1, 0 or -1.
      value: the difference, in the unit of our scores; None where the paper says it in words alone.
      score: id of the score, `suite/task/metric`; or those whose mean it is, joined by ` + `.
      where: the two figures, their column, rows and tables; or the paper's words.
    """

    sign: int
    value: float | None
    score: str
    where: str


def row_values(paper: str, table: str, row: str) -> dict[str, float]:
    """Returns `suite/task/metric` -> the printed figure of a row, in the unit of our scores.

    Raises:
      UserError: for an unknown table or row.
    """
    cells = _read_cells(paper, table, row)
    return {score: value for score, (_, value) in cells.items()}


def _read_cells(paper: str, table: str, row: str) -> dict[str, tuple[str, float]]:
    """Returns `suite/task/metric` -> the heading and the figure of a row; see `row_values`."""
    for one in paper_tables():
        if (one.paper, one.table) == (paper, table) and row in dict(one.rows):
            break
    else:
        raise UserError(f"{paper}, {table}: no such table, or none with the row {row!r}")
    cells: dict[str, tuple[str, float]] = {}
    for _, variant in one.variants:
        for (label, column), printed in zip(one.columns, dict(one.rows)[row]):
            for score in (column or "").replace("*", variant).split("|"):
                if "/" in score and printed is not None:
                    cells.setdefault(f"{one.suite}/{score}", (label, printed * one.scale))
    return cells
