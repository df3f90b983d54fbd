"""The parts of a suite: tasks that are read and scored, and declared metrics."""

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import (
    Metric,
    SuiteResults,
    Summary,
    Task,
    read_tasks,
    score_tasks,
)


def _encode(texts):
    return np.array([[len(text), 1.0] for text in texts])


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


def test_metrics_are_looked_up_by_name():
    """A declared name goes before a pattern; an unknown name is its own label."""
    share = Metric("share_*", "neighbours in *", "%", better=0)
    own = Metric("share_own", "own neighbours", "%", better=-1, main=True)
    results = SuiteResults((own, own.variant("_pcr", "component removed"), share))
    assert results.main == [own] and results.metric("share_own").better == -1
    assert results.metric("share_own_pcr").text == "own neighbours, %, component removed"
    assert results.metric("share_de").text == "neighbours in de, %"
    assert Metric("r", "Pearson's r", "× 100").text == "Pearson's r × 100"
    assert results.metric("other").text == "other" and results.metric("other").better == 1
    assert not results.is_average("mean") and SuiteResults((), averages="mean").is_average("mean")
