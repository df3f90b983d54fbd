"""The notebook: its cells run one after the other, as a reader runs them."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "tour.ipynb"


@pytest.mark.long
def test_every_cell_runs(tmp_path, monkeypatch, capsys):
    """In an empty folder; the search finds the food, and the modules are there."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    printed = capsys.readouterr().out
    assert "(3, 384)" in printed and "Milk and bread are in the fridge." in printed
    assert "'encoder'" in printed and "'preprocess'" in printed
