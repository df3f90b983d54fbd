"""The parts of a suite: tasks that are read and scored, and declared metrics; a whole toy suite."""

import dataclasses
import sys
import types

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoding import OpenedEncoder
from official_cmlm.evaluation.report import driver
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import (
    Metric,
    SuiteResults,
    Summary,
    Task,
    read_tasks,
    score_tasks,
)
from tests.evaluation import toy


@dataclasses.dataclass(eq=False)
class _Lengths(Task):
    """The mean length of the lines of a file, as the encoder's first value tells it."""

    data: DataFolder

    def texts(self):
        return {"": self.data.lines(self.data.root / f"{self.name}.txt", "write it")}

    def score(self, encode, report):
        vectors = encode(self.texts()[""])
        report.add(self.name, "length", float(vectors[:, 0].mean()), len(vectors))


@dataclasses.dataclass(frozen=True)
class _Options:
    """Choice of the files."""

    tasks: list[str] = dataclasses.field(default_factory=list)


def _mean(report):
    values = [score.value for score in report.scores]
    report.add("mean", "length", float(np.mean(values)), len(values))


@pytest.fixture
def suite(monkeypatch):
    """A suite in one module, with its line in `SUITES`."""
    module = types.ModuleType("official_cmlm.evaluation.suites.lengths", "Lengths of texts.")
    module.Options = _Options
    module.RESULTS = SuiteResults(
        (Metric("length", "mean length", "characters", better=-1, decimals=1, main=True),),
        averages="mean",
        bars="Lengths",
    )
    module.tasks = lambda data, options, report: (
        *(_Lengths(name, data) for name in options.tasks),
        Summary("", _mean),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(suites.SUITES, "lengths", "lengths of texts")
    return module


def _encode(texts):
    return np.array([[len(text), 1.0] for text in texts])


def test_a_suite_is_one_module_and_one_line(suite, tmp_path):
    """It is run, tabulated by its declared metric, drawn, and its missing file is named."""
    toy.write(tmp_path / "data/a.txt", ["x", "xyz"])
    toy.write(tmp_path / "data/b.txt", ["xxxx"])
    options = driver.parse_options(["lengths"], ["lengths.tasks=a,b,c"])
    encoder = OpenedEncoder("toy", "python", "0" * 16, _encode)
    results = driver.run(encoder, "", "toy", tmp_path / "data", tmp_path / "out", options)
    found = results["suites"]["lengths"]
    values = {score["task"]: score["value"] for score in found["scores"]}
    assert values == {"a": 2.0, "b": 4.0, "mean": 3.0} and not found["failures"]
    assert [one["task"] for one in found["missing"]] == ["c"]
    text = (tmp_path / "out/results.md").read_text()
    assert "| lengths | a | mean length, characters | 2.0 | 2 |" in text
    assert "Lengths" in (tmp_path / "out/report.html").read_text()
    assert driver.check_data("lengths", tmp_path / "data", options["lengths"]) == [
        f"c: {tmp_path / 'data/c.txt'}: missing; write it"
    ]


class _Failing(Task):
    def texts(self):
        raise UserError("broken")


def test_errors_come_in_the_order_of_the_tasks():
    """Each task reports its own; one that is optional and has no data is left out."""
    tasks = [
        Task("a", error=MissingData("x", "fetch it"), is_optional=True),
        _Failing("b"),
        Task("c", notes=["a note"], unread={"c.1": UserError("no part"), "c.2": UserError("nor")}),
        Task("d", error=MissingData("y", "fetch it")),
    ]
    report = SuiteReport()
    score_tasks(read_tasks(tasks, {}), report, lambda task: None)
    assert report.failures == ["b: broken", "c.1: no part", "c.2: nor"]
    assert [one.task for one in report.missing] == ["d"] and report.notes == ["a note"]


def test_an_error_of_the_whole_suite_is_raised_after_the_tasks_before_it():
    """A generator of tasks that fails leaves the scores of earlier tasks."""

    def tasks():
        yield Summary("", lambda report: report.add("a", "m", 1.0, 1))
        raise UserError("no folder")

    report = SuiteReport()
    with pytest.raises(UserError, match="no folder"):
        score_tasks(read_tasks(tasks(), {}), report, lambda task: task.score(_encode, report))
    assert report.get("a", "m") == 1.0


def test_metrics_by_name():
    """A declared name goes before a pattern; an unknown name is its own label."""
    share = Metric("share_*", "neighbours in *", "%", better=0)
    own = Metric("share_own", "own neighbours", "%", better=-1, main=True)
    found = SuiteResults((own, own.variant("_pcr", "component removed"), share))
    assert found.main == [own] and found.metric("share_own").better == -1
    assert found.metric("share_own_pcr").text == "own neighbours, %, component removed"
    assert found.metric("share_de").text == "neighbours in de, %"
    assert Metric("r", "Pearson's r", "× 100").text == "Pearson's r × 100"
    assert found.metric("other").text == "other" and found.metric("other").better == 1
    assert not found.is_average("mean") and SuiteResults((), averages="mean").is_average("mean")
