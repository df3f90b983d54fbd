"""The STS suite: every year, convention, subset and language that is there."""

import numpy as np
import pytest

from official_cmlm.evaluation import sts_suite
from official_cmlm.evaluation.data import DataFolder
from official_cmlm.evaluation.report import SuiteReport
from official_cmlm.evaluation.sts_suite import YEARS, Options
from tests.evaluation import toy


def _write(root, years):
    toy.write_senteval(root / "senteval/downstream")
    for year in years:
        folder = root / f"senteval/downstream/STS/{year}-en-test"
        for subset in ("a", "b"):
            texts = [f"{a} {subset}\t{toy.GOOD[0]}" for a in (*toy.GOOD, *toy.BAD)]
            toy.write(folder / f"STS.input.{subset}.txt", texts)
            toy.write(folder / f"STS.gs.{subset}.txt", ["5", "4", "", "0"])
    toy.write(root / "stsb_multi_mt/stsb-pt-br-test.csv", ['"a, b",a b,5.0', "c,d,0", "e,f,1.5"])


def _run(root, **options):
    report = SuiteReport()
    sts_suite.evaluate(toy.encode, DataFolder(root), Options(**options), report)
    return report


def test_all_there(tmp_path):
    """Years with three conventions and their subsets, STS-B, SICK-R, a language, the average."""
    _write(tmp_path, YEARS)
    report = _run(tmp_path)
    assert report.failures == []
    for convention in ("all", "mean", "wmean"):
        for kind in ("spearman", "pearson"):
            assert report.get("STS13", f"{kind}_{convention}") is not None
    assert report.get("STS16.b", "spearman") is not None
    assert report.get("STS-B.pt-br", "pearson") is not None
    seven = [report.get(year, "spearman_all") for year in YEARS]
    seven += [report.get(name, "spearman") for name in ("STS-B", "SICK-R")]
    assert report.get("average", "spearman_all") == pytest.approx(np.mean(seven))
    assert "STS12: 2 of 8 pairs have no score; left out" in report.notes
    assert next(s.count for s in report.scores if s.task == "STS12") == 6


def test_missing_years_are_named(tmp_path):
    """They are failures, the others are scored, and there is no average of fewer."""
    _write(tmp_path, ["STS14"])
    report = _run(tmp_path, subsets=False, other_languages=False)
    assert [line.split(":")[0] for line in report.failures] == ["STS12", "STS13", "STS15", "STS16"]
    assert report.get("STS14", "spearman_all") is not None
    assert report.get("STS14.a", "spearman") is None
    assert report.get("average", "spearman_all") is None
    assert any("not computed without STS12, STS13, STS15, STS16" in note for note in report.notes)


def test_split(tmp_path):
    """STS-B's development set by an option; nothing else."""
    _write(tmp_path, [])
    assert _run(tmp_path, split="dev").get("STS-B", "spearman") is not None
    with pytest.raises(ValueError, match="split must be test, dev or train"):
        Options(split="valid")


def test_real_files(data_dir):
    """STS15's pairs without gold are left out: 3,000 of 8,500 remain."""
    report = _run(data_dir)
    counts = {score.task: score.count for score in report.scores}
    assert (counts["STS14"], counts["STS15"], counts["STS-B"], counts["SICK-R"]) == (
        *(3750, 3000),
        *(1379, 4927),
    )
    assert "STS15: 5500 of 8500 pairs have no score; left out" in report.notes
