"""An objective outside of the package: in chunks and not, and modules that cannot be imported."""

import runpy

import pytest
import tensorflow as tf

from official_cmlm.cli import import_user_module
from official_cmlm.common.errors import UserError
from tests.docs.pages import ROOT
from tests.modeling.helpers import build, make_pairs
from tests.training.step_values import check_equal, step_values


def test_its_step_in_chunks_is_the_same(monkeypatch):
    """With dropout; docs/contributing.md trains with it, by `--import_module`."""
    # Other tests must not meet it.
    monkeypatch.setattr("official_cmlm.objectives.base._OBJECTIVES", {})
    program = runpy.run_path(str(ROOT / "examples" / "own_objective.py"))
    config = program["AlignmentUniformityConfig"](uniformity_weight=0.1)
    model = build({"alignment_uniformity": config}, dropout_rate=0.2)
    lengths = [5, 9, 3, 7, 2, 6, 4, 8]
    pairs = make_pairs(first=lengths, second=lengths[::-1], counts=[1] * 8)
    features = {"alignment_uniformity": {**pairs, "key": tf.range(8, dtype=tf.int64)}}
    check_equal(step_values(model, features, 3), step_values(model, features), rtol=1e-4)


def test_it_is_short():
    """The lines that a user has to write, both files together."""
    files = [ROOT / "examples" / f"own_objective.{kind}" for kind in ("py", "yaml")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < 100


def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch):
    """One line with the name and the reason, whatever the module raises."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_objective.py").write_text("raise RuntimeError('no luck')\n")
    with pytest.raises(UserError, match=r"broken_objective: cannot be .* no luck\); try again"):
        import_user_module("broken_objective", "try again")
    with pytest.raises(UserError, match="no_such_objective: cannot be imported"):
        import_user_module("no_such_objective", "try again")
