"""The STS suite: every year, convention, subset and language that is there."""

import numpy as np
import pytest

from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites import sts as sts_suite
from official_cmlm.evaluation.suites.sts import YEARS, Options
from tests.evaluation import toy


def _write(root, years):
    toy.write_senteval(root / "senteval/downstream")
    for year in years:
        toy.write_year(root / f"senteval/downstream/STS/{year}-en-test", ["5", "4", "", "0"])
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
    assert report.get("STS16.plagiarism", "spearman") is not None
    assert report.get("STS-B.pt-br", "pearson") is not None
    seven = [report.get(year, "spearman_all") for year in YEARS]
    seven += [report.get(name, "spearman") for name in ("STS-B", "SICK-R")]
    assert report.get("average", "spearman_all") == pytest.approx(np.mean(seven))
    assert "STS12: 5 of 20 pairs have no score; left out" in report.notes
    assert next(s.count for s in report.scores if s.task == "STS12") == 15


def test_missing_years_are_named(tmp_path):
    """They are failures, the others are scored, and there is no average of fewer."""
    _write(tmp_path, ["STS14"])
    report = _run(tmp_path, subsets=False, other_languages=False)
    assert [line.split(":")[0] for line in report.failures] == ["STS12", "STS13", "STS15", "STS16"]
    assert report.get("STS14", "spearman_all") is not None
    assert report.get("STS14.images", "spearman") is None
    assert report.get("average", "spearman_all") is None
    assert any("not computed without STS12, STS13, STS15, STS16" in note for note in report.notes)


def test_a_missing_subset_is_no_smaller_year(tmp_path):
    """A year is all of its subsets; what SentEval leaves out is left out, and said."""
    _write(tmp_path, ["STS12", "STS13"])
    folder = tmp_path / "senteval/downstream/STS"
    (folder / "STS12-en-test/STS.input.MSRvid.txt").unlink()
    for kind in ("input", "gs"):
        toy.write(folder / f"STS13-en-test/STS.{kind}.SMT.txt", ["x\ty"])
    report = _run(tmp_path)
    assert any("STS12: " in line and "MSRvid.txt: missing" in line for line in report.unscored)
    assert next(s.count for s in report.scores if s.task == "STS13") == 9
    assert "STS13: STS.input.SMT.txt is not a subset that SentEval scores; left out" in report.notes


def test_scores_that_are_missing_or_none(tmp_path):
    """Left out and counted, in every file; the last one may lack its line end."""
    _write(tmp_path, ["STS14"])
    path = tmp_path / "senteval/downstream/STS/STS14-en-test/STS.gs.images.txt"
    path.write_bytes(b"5\n4\n1\n")
    benchmark = tmp_path / "senteval/downstream/STS/STSBenchmark/sts-test.csv"
    lines = benchmark.read_text().splitlines()
    lines[0] = lines[0].replace("\t0.0\t", "\tnan\t")
    benchmark.write_text("\n".join([*lines, "too\tshort"]) + "\n")
    toy.write(tmp_path / "stsb_multi_mt/stsb-xx-test.csv", ['"open,b,1', "a,b,2", "c,d,3"])
    report = _run(tmp_path)
    assert "STS-B: 2 of 61 pairs have no score; left out" in report.notes
    assert "STS-B.xx: 1 of 3 pairs have no score; left out" in report.notes
    assert "STS14: 6 of 24 pairs have no score; left out" in report.notes


def test_split(tmp_path):
    """STS-B's development set by an option; nothing else."""
    _write(tmp_path, [])
    assert _run(tmp_path, split="dev").get("STS-B", "spearman") is not None
    with pytest.raises(ValueError, match="split must be one of test, dev, train"):
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
