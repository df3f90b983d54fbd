"""The report: scores, their deviation over seeds, and which errors a task keeps to itself."""

import dataclasses

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import EncoderError, OpenedEncoder, prompted
from official_cmlm.evaluation.scores import (
    Missing,
    MissingData,
    Score,
    SuiteReport,
    TextLengths,
    mean_by_seed,
)
from tests.evaluation import toy


def test_one_value():
    """A single number has no deviation."""
    report = SuiteReport()
    report.add("STS14", "spearman_all", 63.5, 3750)
    assert report.scores == [Score("STS14", "spearman_all", 63.5, 3750, None)]
    assert report.get("STS14", "spearman_all") == 63.5


def test_several_seeds():
    """Mean and sample deviation: of 1, 2 and 6 they are 3 and sqrt(7)."""
    report = SuiteReport()
    report.add("MR", "accuracy", [1.0, 2.0, 6.0], 10)
    assert report.scores[0].value == 3.0
    assert report.scores[0].deviation == pytest.approx(7**0.5)
    report.add("CR", "accuracy", 4.0, 10)
    mean = mean_by_seed([report.by_seed(task, "accuracy") for task in ("MR", "CR")])
    assert mean.tolist() == [2.5, 3.0, 5.0] and report.by_seed("SST2", "accuracy") is None


def test_numpy_values_become_plain_numbers():
    """Numbers that are written to JSON later must be Python's own."""
    report = SuiteReport()
    report.add("a", "b", np.float32(1.5), np.int64(3))
    report.add("a", "c", np.array([1.0, 2.0]), 3)
    for score in report.scores:
        assert type(score.value) is float and type(score.count) is int
    assert type(report.scores[1].deviation) is float


def test_twice():
    """A task has a metric once; another metric or task is another score."""
    report = SuiteReport()
    report.add("a", "b", 1.0, 1)
    report.add("a", "c", 1.0, 1)
    report.add("b", "b", 1.0, 1)
    with pytest.raises(ValueError, match="a/b was already scored"):
        report.add("a", "b", 2.0, 1)
    assert report.get("a", "b") == 1.0 and len(report.scores) == 3


def test_no_value():
    """No seed, no score; no number, no score."""
    for values in ([], [1.0, float("nan")], float("inf")):
        with pytest.raises(ValueError, match="needs finite numbers"):
            SuiteReport().add("a", "b", values, 1)


def test_user_errors_become_failures():
    """Earlier scores stay, and later tasks run."""
    report = SuiteReport()
    with report.task("one"):
        report.add("one", "m", 1.0, 1)
        raise UserError("file.txt: missing; fetch it")
    with report.task("two"):
        report.add("two", "m", 2.0, 1)
    assert report.failures == ["one: file.txt: missing; fetch it"]
    assert [score.task for score in report.scores] == ["one", "two"]


def test_missing_data_is_no_failure():
    """A task without data is not a failure; the path that was looked for is kept."""
    report = SuiteReport()
    with report.task("one"):
        raise MissingData("data/file.txt", "fetch it")
    assert report.missing == [Missing("one", "data/file.txt", "fetch it")] and not report.failures
    assert report.unscored == ["one: data/file.txt: missing; fetch it"]


def test_faults_of_a_task():
    """A value that cannot be is a line; of a fault of the code the trace is kept too."""
    report = SuiteReport()
    with report.task("one"):
        raise ValueError("too\nfew")
    with report.task("two"):
        raise TypeError("a bug")
    assert report.failures == ["one: too few", "two: stopped by TypeError: a bug"]
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
        roles={"query": prompted(toy.encode, "9 ")},
        max_seq_length=longest,
        count_tokens=lambda texts: np.array([sum(map(int, text.split())) for text in texts]),
        prompt="1 ",
    )


def test_cut_texts_are_counted_by_task():
    """A text counts once a task and role, with its prompt, and again in another task."""
    lengths = TextLengths(_counting(10))
    lengths.add("MR", {"": ["4", "11", "9", "11"]})
    lengths.add("CR", {"": ["11", "109"]})
    lengths.add("", {"query": ["1"], "": ["9"]})
    assert {task: dataclasses.astuple(found) for task, found in lengths.tasks.items()} == {
        "MR": (3, 1, 27, 2),
        "CR": (2, 2, 122, 102),
        "": (2, 0, 20, 0),
    }
    (note,) = lengths.notes()
    assert note.startswith("texts of more than 10 tokens were cut (--max_seq_length ")
    assert note.endswith(
        ": CR 2 of 2 texts (84 % of the tokens); MR 1 of 3 texts (7.4 % of the tokens)"
    )


def test_a_role_that_the_encoder_lacks_is_none():
    """Its texts are the encoder's own, each counted once."""
    lengths = TextLengths(_counting(10))
    lengths.add("a", {"document": ["5", "6"], "": ["5"]})
    assert dataclasses.astuple(lengths.tasks["a"]) == (2, 0, 13, 0)


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
