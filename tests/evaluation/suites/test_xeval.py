"""XEVAL: languages, their averages, and missing folders."""

import shutil

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites import senteval as senteval_suite
from official_cmlm.evaluation.suites import xeval as xeval_suite
from tests.evaluation import toy


def test_xeval_averages_the_papers_tasks(tmp_path):
    """Nine tasks, also where others are scored; a mean over other languages is named so."""
    toy.write_senteval(tmp_path / "xeval/de")
    for language in ("fr", "pl"):
        shutil.copytree(tmp_path / "xeval/de", tmp_path / "xeval" / language)
    report = toy.run(xeval_suite, toy.encode, tmp_path)
    assert report.unscored == []
    assert report.configuration == "fast: 5 folds, rmsprop, batches of 128, 1 seed"
    nine = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E"]
    german = [report.get(f"de.{name}", "accuracy") for name in nine]
    german.append(report.get("de.SICK-R", "pearson"))
    assert report.get("de", "average") == pytest.approx(np.mean(german))
    assert report.get("de.SNLI", "accuracy") is not None
    assert report.get("pl", "average") is not None
    # Polish is not a language of the paper; 13 of its languages are not here.
    assert report.get("mean", "average") is None
    assert report.get("mean", "average_of_part") == pytest.approx(report.get("de", "average"))
    assert report.notes[-1] == "mean: average_of_part over de, fr"


def test_xeval_scores_each_language(tmp_path):
    """A language without all nine tasks has an average of its own name, and is in no mean."""
    toy.write_senteval(tmp_path / "xeval/de")
    toy.write_senteval(tmp_path / "full")
    for name in ("MR", "CR", "SICK"):
        (tmp_path / "xeval/fr").mkdir(exist_ok=True)
        (tmp_path / "full" / name).rename(tmp_path / "xeval/fr" / name)
    options = xeval_suite.Options(tasks=["MR", "SICK-R", "SST2", "SST5"])
    report = toy.run(xeval_suite, toy.encode, tmp_path, options)
    assert report.failures == []
    german = [report.get("de.MR", "accuracy"), report.get("de.SST2", "accuracy")]
    german.append(report.get("de.SICK-R", "pearson"))
    assert report.get("de", "average_of_part") == pytest.approx(np.mean(german))
    french = [report.get("fr.MR", "accuracy"), report.get("fr.SICK-R", "pearson")]
    assert report.get("fr", "average_of_part") == pytest.approx(np.mean(french))
    assert report.get("fr.SST2", "accuracy") is None
    assert report.get("de.SST5", "accuracy") is not None
    assert not {"average"} & {score.metric for score in report.scores}
    assert "mean" not in {score.task for score in report.scores}


def test_mean_needs_every_language_of_the_paper():
    """The paper's mean needs each of its languages, and counts no other."""
    report = SuiteReport()
    averages = {language: float(i) for i, language in enumerate(xeval_suite.LANGUAGES)}
    averages["pl"] = 99.0
    for language, value in averages.items():
        for name in senteval_suite.CMLM_TASKS:
            report.add(f"{language}.{name}", senteval_suite.main_metric(name), value, 1)
    xeval_suite._mean(list(averages), report)
    assert report.get("mean", "average") == pytest.approx(7.0)
    assert report.notes == []


def test_chosen_languages_are_averaged(tmp_path):
    """The mean over a part is named as such, and the others are neither missing nor failed."""
    for language in ("de", "fr", "es"):
        toy.write_senteval(tmp_path / "xeval" / language)
    report = toy.run(xeval_suite, toy.encode, tmp_path, tasks=["MR"], languages=["fr", "DE"])
    assert {score.task for score in report.scores} == {"de.MR", "fr.MR", "de", "fr", "mean"}
    assert "mean: average_of_part over de, fr" in report.notes
    assert not report.missing and not report.failures
    with pytest.raises(UserError, match="xeval.languages: the data has no 'sw'; it has de, es, fr"):
        toy.run(xeval_suite, toy.encode, tmp_path, tasks=["MR"], languages=["sw"])


def test_english_is_sentevals_own(tmp_path):
    """XEVAL is a translation of it; a folder of English below `xeval` goes first."""
    toy.write_senteval(tmp_path / "xeval/de")
    toy.write_senteval(tmp_path / "senteval/downstream")
    reviews = [f"a film {i}" for i in range(60)]
    for sign in ("pos", "neg"):
        toy.write(tmp_path / f"senteval/downstream/MR/rt-polarity.{sign}", reviews)
    options = xeval_suite.Options(tasks=["MR"])
    report = toy.run(xeval_suite, toy.encode, tmp_path, options)
    german, english = (report.get(f"{code}.MR", "accuracy") for code in ("de", "en"))
    assert english < german
    assert report.get("mean", "average_of_part") == pytest.approx((german + english) / 2)
    assert "en: SentEval's own files, senteval/downstream" in report.notes
    shutil.copytree(tmp_path / "xeval/de", tmp_path / "xeval/en")
    report = toy.run(xeval_suite, toy.encode, tmp_path, options)
    assert report.get("en.MR", "accuracy") == german


def test_languages_may_lie_in_the_data_folder(tmp_path):
    """Languages may lie in the data folder itself; what failed is in no average."""
    toy.write_senteval(tmp_path / "de")
    (tmp_path / "de/SST/binary/sentiment-test").unlink()
    report = toy.run(xeval_suite, toy.encode, tmp_path, tasks=["MR", "SST2"])
    assert report.get("de", "average_of_part") == report.get("de.MR", "accuracy")
    assert "de: average_of_part over MR" in report.notes
    assert [one.task for one in report.missing] == ["de.SST2"]


def test_xeval_takes_no_other_folder_for_a_language(tmp_path):
    """Folders of the data folder itself count if they are called by a language's code."""
    for name in ("downstream", "senteval", "data", "de", "zh-Hant", "pt_BR", "xx yy"):
        toy.write(tmp_path / name / "MR/rt-polarity.pos", ["good"])
    options = xeval_suite.Options(tasks=["MR"], languages=["sw"])
    with pytest.raises(UserError, match="no 'sw'; it has de, pt_BR, zh-Hant$"):
        toy.run(xeval_suite, toy.encode, tmp_path, options)
    for name in ("de", "zh-Hant", "pt_BR"):
        shutil.rmtree(tmp_path / name)
    with pytest.raises(UserError, match="<language>/<task>: missing"):
        toy.run(xeval_suite, toy.encode, tmp_path, options)
