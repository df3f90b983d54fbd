"""The papers' own tables, copied as printed, and which scores of ours stand in their columns.

Each `*.json` beside this file holds the tables of a paper. A column's `id` is a score of ours,
`task/metric`, or several with `|` between them, of which the first that is there counts; `=mean`
is the mean of the row's other columns; null is a figure that no suite computes. `*` in an id
stands for each of the table's `variants` in turn, a row of ours each: where a paper does not state
its protocol, all that it may have been are shown.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
      paper, table, caption: whose, which, what it shows.
      suite: the suite that computes its figures.
      protocol: how the paper says they were found, and what it does not say.
      columns: (the paper's heading, our id or None).
      rows: (model, a value a column or None), as printed.
      variants: (what our row is, what `*` in ids stands for).
      scale: printed values times this are in our unit.
      decimals: of values in our unit.
      ablation: compares variants of one model.
    """

    paper: str
    table: str
    caption: str
    suite: str
    protocol: str
    columns: list[tuple[str, str | None]]
    rows: list[tuple[str, list[float | None]]]
    variants: list[tuple[str, str]]
    scale: float
    decimals: int
    ablation: bool


@functools.cache
def paper_tables() -> tuple[PaperTable, ...]:
    """All tables, in the order of the files and in them."""
    documents = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(Path(__file__).parent.glob("*.json"))
    ]
    return tuple(
        _table(entry, document["paper"]) for document in documents for entry in document["tables"]
    )


def _table(entry: dict[str, Any], paper: str) -> PaperTable:
    return PaperTable(
        paper=paper,
        columns=[(column["label"], column["id"]) for column in entry["columns"]],
        rows=[(row["model"], row["values"]) for row in entry["rows"]],
        variants=[(label, metric) for label, metric in entry.get("variants", [["", ""]])],
        scale=entry.get("scale", 1.0),
        decimals=entry.get("decimals", 1),
        ablation=entry.get("ablation", False),
        **{key: entry[key] for key in ("table", "caption", "suite", "protocol")},
    )


def own_values(
    table: PaperTable, found: Mapping[str, float | None], variant: str = ""
) -> list[float | None]:
    """Our value for each column, None where there is none.

    Args:
      table: whose columns.
      found: `task/metric` -> value.
      variant: what `*` in ids stands for.
    """
    values: list[float | None] = []
    for _, column in table.columns:
        ids = (column or "").replace("*", variant).split("|")
        hits = [found[i] for i in ids if found.get(i) is not None and math.isfinite(found[i])]
        values.append(hits[0] if hits else None)
    others = [value for value, (_, column) in zip(values, table.columns) if column != "=mean"]
    mean = sum(others) / len(others) if None not in others else None
    return [
        mean if column == "=mean" else value for value, (_, column) in zip(values, table.columns)
    ]
