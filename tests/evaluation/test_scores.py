"""The report: scores, their deviation over seeds, and which errors a task keeps to itself."""

import dataclasses

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.encoder import EncoderError, OpenedEncoder, add_prompt
from official_cmlm.evaluation.scores import (
    Missing,
    MissingData,
    Score,
    SuiteReport,
    TextLengths,
    mean_by_seed,
)
from tests.evaluation import toy


def test_single_value_has_no_deviation():
    """A single number has no deviation; numbers are Python's own, since JSON takes no others."""
    report = SuiteReport()
    report.add("STS14", "spearman_all", np.float32(63.5), np.int64(3750))
    (score,) = report.scores
    assert score == Score("STS14", "spearman_all", 63.5, 3750, None)
    assert type(score.value) is float and type(score.count) is int
    assert report.get("STS14", "spearman_all") == 63.5


def test_several_seeds_have_mean_and_deviation():
    """Mean and sample deviation: of 1, 2 and 6 they are 3 and sqrt(7)."""
    report = SuiteReport()
    report.add("MR", "accuracy", [1.0, 2.0, 6.0], 10)
    (score,) = report.scores
    assert score.value == 3.0 and score.deviation == pytest.approx(7**0.5)
    assert type(score.deviation) is float
    report.add("CR", "accuracy", 4.0, 10)
    mean = mean_by_seed([report.by_seed(task, "accuracy") for task in ("MR", "CR")])
    assert mean.tolist() == [2.5, 3.0, 5.0] and report.by_seed("SST2", "accuracy") is None


def test_repeated_and_infinite_scores_are_refused():
    """A task has a metric once; another metric or task is another score; numbers are finite."""
    report = SuiteReport()
    for task, metric in ("ab", "ac", "bb"):
        report.add(task, metric, 1.0, 1)
    with pytest.raises(ValueError, match="a/b was already scored"):
        report.add("a", "b", 2.0, 1)
    for values in ([], [1.0, float("nan")], float("inf")):
        with pytest.raises(ValueError, match="needs finite numbers"):
            report.add("c", "b", values, 1)
    assert report.get("a", "b") == 1.0 and len(report.scores) == 3


def test_faults_of_a_task_spare_the_others():
    """Earlier scores stay, later tasks run, each fault is a line; a fault of the code has a trace.

    A task without data is not a failure; the path that was looked for is kept.
    """
    report = SuiteReport()
    for name, error in (
        ("one", UserError("file.txt: damaged; fetch it")),
        ("two", MissingData("data/file.txt", "fetch it")),
        ("three", ValueError("too\nfew")),
        ("four", TypeError("a bug")),
    ):
        with report.task(name):
            report.add(name, "m", 1.0, 1)
            raise error
    assert report.failures == [
        *("one: file.txt: damaged; fetch it", "three: too few"),
        "four: stopped by TypeError: a bug",
    ]
    assert report.missing == [Missing("two", "data/file.txt", "fetch it")]
    assert report.unscored[:2] == ["two: data/file.txt: missing; fetch it", report.failures[0]]
    assert [score.task for score in report.scores] == ["one", "two", "three", "four"]
    assert len(report.traces) == 1 and "TypeError: a bug" in report.traces[0]


@pytest.mark.parametrize("error", [EncoderError("NaN"), KeyboardInterrupt()])
def test_other_errors_are_passed_on(error):
    """A fault of the encoder, and a stop by hand."""
    report = SuiteReport()
    with pytest.raises(type(error)):
        with report.task("one"):
            raise error
    assert not report.failures


def _counting(longest):
    """Returns an encoder whose texts say how many tokens they have."""
    return OpenedEncoder(
        *("toy", "python", "0" * 16, toy.encode),
        roles={"query": add_prompt(toy.encode, "9 ")},
        max_seq_length=longest,
        count_tokens=lambda texts: np.array([sum(map(int, text.split())) for text in texts]),
        prompt="1 ",
    )


def test_cut_texts_are_counted_by_task():
    """A text counts once a task and role, with its prompt, and again in another task.

    Of a role that the encoder lacks, texts are its own.
    """
    lengths = TextLengths(_counting(10))
    lengths.add("MR", {"": ["4", "11", "9", "11"]})
    lengths.add("CR", {"": ["11", "109"]})
    lengths.add("", {"query": ["1"], "": ["9"]})
    lengths.add("NQ", {"document": ["5", "6"], "": ["5"]})
    assert {task: dataclasses.astuple(counts) for task, counts in lengths.tasks.items()} == {
        "MR": (3, 1, 27, 2),
        "CR": (2, 2, 122, 102),
        "": (2, 0, 20, 0),
        "NQ": (2, 0, 13, 0),
    }
    (note,) = lengths.notes()
    assert note.startswith("texts of more than 10 tokens were cut (--max_seq_length ")
    assert note.endswith(
        ": CR 2 of 2 texts (84 % of the tokens); MR 1 of 3 texts (7.4 % of the tokens)"
    )


def test_many_cut_tasks_make_a_note_of_bounded_length():
    """Twenty are named, the rest counted."""
    lengths = TextLengths(_counting(1))
    for number in range(25):
        lengths.add(f"task {number}", {"": [f"{i}" for i in range(1, 1001)]})
    (note,) = lengths.notes()
    assert note.count("1,000 of 1,000 texts") == 20 and note.endswith("; and 5 more tasks")


def test_nothing_cut_is_no_note():
    """Nor is anything counted for an encoder whose length is not known, or without any."""
    for encoder, tasks in ((_counting(10), 1), (_counting(None), 0), (None, 0)):
        lengths = TextLengths(encoder)
        lengths.add("a", {"": ["9", "3"]})
        lengths.add("none", {"": []})
        assert lengths.notes() == [] and len(lengths.tasks) == tasks
