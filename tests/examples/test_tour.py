"""The notebook: its cells run one after the other, as a reader runs them."""

import json
import runpy

import pytest

from tests.docs.pages import ROOT


@pytest.mark.long
def test_every_cell_runs(tmp_path, monkeypatch, capsys):
    """In an empty folder; the search finds the food, and the modules are there."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells)
    program = tmp_path / "tour.py"
    program.write_text("\n".join("".join(cell["source"]) for cell in cells), encoding="utf-8")
    runpy.run_path(str(program))
    printed = capsys.readouterr().out
    assert "(3, 384)" in printed and "Milk and bread are in the fridge." in printed
    assert "'encoder'" in printed and "'preprocess'" in printed
