"""XEVAL: languages, their averages, and missing folders."""

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites import xeval as xeval_suite
from tests.evaluation import toy


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
    toy.write(tmp_path / "xeval/de/MR/rt-polarity.pos", ["good"])
    options = xeval_suite.Options(languages=["sw"])
    with pytest.raises(UserError, match="xeval.languages: the data has no 'sw'; it has de"):
        xeval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, SuiteReport())


def test_xeval_languages_that_were_chosen(tmp_path):
    """The mean over a part is named as such, and the others are neither missing nor failed."""
    for language in ("de", "fr", "es"):
        toy.write_senteval(tmp_path / "xeval" / language)
    report = SuiteReport()
    options = xeval_suite.Options(tasks=["MR"], languages=["fr", "DE"])
    xeval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, report)
    assert {score.task for score in report.scores} == {"de.MR", "fr.MR", "de", "fr", "mean"}
    assert "mean is over a part that was chosen: de fr" in report.notes
    assert not report.missing and not report.failures


def test_xeval_without_its_folder(tmp_path):
    """Languages may lie in the data folder itself; what failed is in no average."""
    toy.write_senteval(tmp_path / "de")
    (tmp_path / "de/SST/binary/sentiment-test").unlink()
    report = SuiteReport()
    options = xeval_suite.Options(tasks=["MR", "SST2"])
    xeval_suite.evaluate(toy.encode, DataFolder(tmp_path), options, report)
    assert report.get("de", "average") == report.get("de.MR", "accuracy")
    assert "de: average over MR" in report.notes
    assert [one.task for one in report.missing] == ["de.SST2"]
