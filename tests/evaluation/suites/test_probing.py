"""SentEval's probing files, parts and classes."""

import pytest

from official_cmlm.evaluation.suites import probing as probing_suite
from tests.evaluation import toy


def test_all_ten_tasks_are_solved(tmp_path):
    """Each is solved from its own file and averaged."""
    toy.write_probing(tmp_path / "senteval/probing")
    report = toy.run(probing_suite, toy.encode, tmp_path)
    assert report.failures == []
    both = ("accuracy", "dev_accuracy")
    assert [(s.task, s.metric) for s in report.scores] == [
        (task, metric) for task in (*probing_suite.TASKS, "average") for metric in both
    ]
    assert all(score.value > 95 for score in report.scores)
    assert report.scores[0].count == 60
    assert report.configuration == "fast: rmsprop, batches of 128, 1 seed"


def test_development_scores_are_of_their_own_part(tmp_path):
    """Development scores are of part va alone; an average over some tasks has another name."""
    toy.write_probing(tmp_path)
    path = tmp_path / "past_present.txt"
    turned = {"PAST": "PRESENT", "PRESENT": "FUTURE", "FUTURE": "PAST"}
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    toy.write(path, [f"{p}\t{turned[c] if p == 'te' else c}\t{t}" for p, c, t in lines])
    options = probing_suite.Options(tasks=["Tense", "Length"])
    report = toy.run(probing_suite, toy.encode, tmp_path, options)
    assert report.get("Tense", "accuracy") < 5 and report.get("Tense", "dev_accuracy") > 95
    assert report.get("average_of_chosen", "accuracy") == pytest.approx(
        (report.get("Tense", "accuracy") + report.get("Length", "accuracy")) / 2
    )
    assert report.get("average_of_chosen", "dev_accuracy") > 95
    assert report.get("average", "accuracy") is None
    assert report.unscored == []
    assert report.notes == ["average_of_chosen: the mean of Tense, Length; no paper's average"]


def test_bad_probing_files_are_named(tmp_path):
    """A part that is missing, a label that was never trained, malformed lines."""
    toy.write_probing(tmp_path)
    path = tmp_path / "past_present.txt"
    path.write_text("tr\tA\tx\nva\tA\tx\n")
    (tmp_path / "subj_number.txt").write_text("tr\tA\tx\nva\tA\tx\nte\tB\tx\n")
    odd = tmp_path / "odd_man_out.txt"
    odd.write_text("nonsense\n" + odd.read_text())
    (tmp_path / "tree_depth.txt").unlink()
    options = probing_suite.Options(tasks=["Tense", "SubjNumber", "OddManOut", "Depth"])
    report = toy.run(probing_suite, toy.encode, tmp_path, options)
    depth, tense, number = report.unscored
    assert not any("no paper's average" in note for note in report.notes)
    assert "past_present.txt: no line of part te" in tense
    assert "parts tr, va and te have no label in common" in number
    assert "tree_depth.txt: missing" in depth
    assert report.notes[:2] == [
        "subj_number.txt: skipped 1 lines, malformed or with a label that part tr lacks",
        "odd_man_out.txt: skipped 1 lines, malformed or with a label that part tr lacks",
    ]
    assert {score.task for score in report.scores} == {"OddManOut"}
