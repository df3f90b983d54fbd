"""The suite of examples/own_suite.py: listed, scored, shown, and refused if its name is taken."""

import json
import sys

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.suite import SuiteResults
from tests.binaries import call
from tests.docs.pages import ROOT
from tests.evaluation import toy


@pytest.fixture
def own(monkeypatch):
    """Keeps the suite from other tests."""
    monkeypatch.chdir(ROOT)
    yield
    sys.modules.pop("examples.own_suite", None)
    for registry in (suites.SUITES, suites._REGISTERED):
        registry.pop("faq", None)


def test_own_suite_is_scored_beside_others(own, tmp_path, capsys):
    toy.write(
        tmp_path / "data/faq/pairs.tsv",
        ["red apple\tan apple is red", "big dog\ta dog is big", "a\tbig red"],
    )
    arguments = ["--encoder=tests.evaluation.toy:encode", f"--data_dir={tmp_path}/data"]
    arguments += ["--import_module=examples.own_suite", f"--output_dir={tmp_path}/out"]
    assert call("experiments.evaluate", *arguments, "--suites=faq", "--set=faq.k=2") == 0
    assert "answers found, %" in capsys.readouterr().out
    results = json.loads((tmp_path / "out/results.json").read_text())["suites"]["faq"]
    (score,) = results["scores"]
    assert (score["task"], score["count"]) == ("pairs", 3)
    assert score["value"] == pytest.approx(200 / 3)
    assert results["protocol"].startswith("Answers found by their questions, from a file")
    assert results["options"] == {"k": 2} and list(results["files"]) == ["faq/pairs.tsv"]
    assert "answers found by their questions" in (tmp_path / "out/results.md").read_text()


def test_own_suite_is_listed(own, capsys):
    assert call("experiments.evaluate", "--import_module=examples.own_suite", "--suites=?") == 0
    assert "faq: answers found by their questions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"), [("sts", "has that name already"), ("my/suite", "needs letters, digits")]
)
def test_names_that_cannot_be_registered(own, name, message):
    with pytest.raises(UserError, match=message):
        suites.register(name, object, SuiteResults(()))(lambda data, options, report: iter(()))
