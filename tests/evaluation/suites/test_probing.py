"""SentEval's probing files, parts and classes; XEVAL's folders and averages."""

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites import probing as probing_suite
from official_cmlm.evaluation.suites import xeval as xeval_suite
from tests.evaluation import toy


def _probe(root, count=60):
    """All ten tasks; the label is the sentence's first word."""
    words = ("past", "present", "future")
    lines = [
        f"{part}\t{words[i % 3].upper()}\t{words[i % 3]} x{i} y"
        for part in ("tr", "va", "te")
        for i in range(count)
    ]
    for name in probing_suite.TASKS.values():
        toy.write(root / name, lines)


def test_all_ten(tmp_path):
    """Each is solved from its own file and averaged."""
    _probe(tmp_path / "senteval/probing")
    report = SuiteReport()
    probing_suite.evaluate(toy.encode, DataFolder(tmp_path), probing_suite.Options(), report)
    assert report.failures == []
    assert [s.task for s in report.scores] == [*probing_suite.TASKS, "average"]
    assert all(score.value > 95 for score in report.scores)
    assert report.scores[0].count == 60


def test_bad_probing_files(tmp_path):
    """A part that is missing, a label that was never trained, malformed lines."""
    _probe(tmp_path)
    path = tmp_path / "past_present.txt"
    path.write_text("tr\tA\tx\nva\tA\tx\n")
    (tmp_path / "subj_number.txt").write_text("tr\tA\tx\nva\tA\tx\nte\tB\tx\n")
    odd = tmp_path / "odd_man_out.txt"
    odd.write_text("nonsense\n" + odd.read_text())
    (tmp_path / "tree_depth.txt").unlink()
    report = SuiteReport()
    options = probing_suite.Options(tasks=["Tense", "SubjNumber", "OddManOut", "Depth"])
    probing_suite.evaluate(toy.encode, DataFolder(tmp_path), options, report)
    tense, number, depth = report.failures
    assert "past_present.txt: no line of part te" in tense
    assert "parts tr, va and te have no label in common" in number
    assert "tree_depth.txt: missing" in depth
    assert report.notes == [
        "subj_number.txt: skipped 1 lines, malformed or with a label that part tr lacks",
        "odd_man_out.txt: skipped 1 lines, malformed or with a label that part tr lacks",
    ]
    assert [score.task for score in report.scores] == ["OddManOut"]
    with pytest.raises(ValueError, match="no task 'Voice'"):
        probing_suite.Options(tasks=["Voice"])


def test_xeval_scores_each_language(tmp_path):
    """A language is averaged over the tasks that it has; languages count alike in the mean."""
    toy.write_senteval(tmp_path / "xeval/de")
    toy.write_senteval(tmp_path / "full")
    for name in ("MR", "CR", "SICK"):
        (tmp_path / "xeval/fr").mkdir(exist_ok=True)
        (tmp_path / "full" / name).rename(tmp_path / "xeval/fr" / name)
    report = SuiteReport()
    options = xeval_suite.Options(tasks=["MR", "SICK-R", "SST2"])
    xeval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, report)
    assert report.failures == []
    german = [report.get("de.MR", "accuracy"), report.get("de.SST2", "accuracy")]
    german.append(report.get("de.SICK-R", "pearson"))
    assert report.get("de", "average") == pytest.approx(np.mean(german))
    french = [report.get("fr.MR", "accuracy"), report.get("fr.SICK-R", "pearson")]
    assert report.get("fr", "average") == pytest.approx(np.mean(french))
    assert report.get("fr.SST2", "accuracy") is None
    mean = np.mean([report.get("de", "average"), report.get("fr", "average")])
    assert report.get("mean", "average") == pytest.approx(mean)


def test_xeval_without_data(tmp_path):
    """The layout is told; a language that was asked for is named."""
    for folder in (".", "xeval/de"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        with pytest.raises(UserError, match=r"no language folder .*xeval/<language>/<task>"):
            xeval_suite.evaluate(
                toy.encode, DataFolder(tmp_path), xeval_suite.Options(), SuiteReport()
            )
    options = xeval_suite.Options(languages=["sw"])
    with pytest.raises(UserError, match="xeval/sw: no task folder for this language"):
        xeval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, SuiteReport())


def test_xeval_without_its_folder(tmp_path):
    """Languages may lie in the data folder itself; what failed is in no average."""
    toy.write_senteval(tmp_path / "de")
    (tmp_path / "de/SST/binary/sentiment-test").unlink()
    report = SuiteReport()
    options = xeval_suite.Options(tasks=["MR", "SST2"])
    xeval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, report)
    assert report.get("de", "average") == report.get("de.MR", "accuracy")
    assert "de: average over MR" in report.notes
    assert report.failures[0].startswith("de.SST2: ")
