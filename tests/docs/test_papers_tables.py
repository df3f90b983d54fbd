"""The page on the papers' tables names each of them, and only what exists."""

import fnmatch
import re

import pytest

from experiments import registry
from official_cmlm.evaluation.report.papers import paper_tables
from official_cmlm.evaluation.suites import SUITES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/papers-tables.md").read_text(encoding="utf-8")
ROWS = {
    title: [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in body.splitlines()
        if line.startswith("| ") and not line.startswith(("| table", "| name"))
    ]
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}


def _tables(cell):
    """`Table 5` and `Figure 2` of a first cell such as `3, 11` or `Figures 5, 8`; or the cell."""
    kind = "Figure" if cell.startswith("Figure") else "Table"
    return {f"{kind} {number}" for number in re.findall(r"\d+", cell)} | {cell}


@pytest.mark.parametrize("table", paper_tables(), ids=lambda table: f"{table.paper} {table.table}")
def test_every_table_has_a_row_with_its_suite(table):
    """A table that results show is explained, by the suite that fills it."""
    name = " ".join(table.table.split()[:2])
    rows = [row for row in ROWS[table.paper] if name in _tables(row[0])]
    assert rows and any(f"`{table.suite}`" in row[2] or row[2] == "as Table 1" for row in rows)


def test_names_exist():
    """Experiments and suites; a star stands for several."""
    experiments = set(registry.experiment_files())
    for paper in ("CMLM", "CMLM-CSE", "DeCLUTR", "Mirror-BERT"):
        for row in ROWS[paper]:
            for name in re.findall(r"`([a-z_]+/[a-z0-9_/*]+)`", row[1]):
                assert fnmatch.filter(experiments, name), name
            for name in re.findall(r"`([a-z_]+)`", row[2]):
                assert name in SUITES, name
