"""Word similarity: correlations by hand, and the quirks of the files."""

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites.word_similarity import Options, crossed, evaluate, parse_pairs
from tests.evaluation import toy

VECTORS = {"x": [1.0, 0.0], "y": [0.0, 2.0], "xy": [3.0, 3.0], "-x": [-5.0, 0.0], "0": [0.0, 0.0]}


def _encode(texts):
    return np.array([VECTORS[text] for text in texts], np.float32)


def _run(root):
    report = SuiteReport()
    evaluate(_encode, DataFolder(root), Options(), report)
    return report


def _write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())


HEADER = "id\tword1\tword2\tpos\tscore\n"


def test_scores_and_average(tmp_path):
    """Cosines 1, 0.71, 0, -1: one language agrees, one is reversed; the average is unweighted."""
    rows = [("x", "x"), ("x", "xy"), ("x", "y"), ("x", "-x")]
    good = [f"{i}\t{a}\t{b}\tnouns\t{6 - i}\n" for i, (a, b) in enumerate(rows)]
    bad = [f"{i}\t{a}\t{b}\tnouns\t{i}\n" for i, (a, b) in enumerate(rows[:3])]
    _write(tmp_path / "multi_simlex/aa.tsv", HEADER + "".join(good))
    _write(tmp_path / "multi_simlex/zz.tsv", HEADER + "".join(bad))
    report = _run(tmp_path)
    assert report.get("multi_simlex.aa", "spearman") == pytest.approx(100)
    assert report.get("multi_simlex.zz", "spearman") == pytest.approx(-100)
    assert report.get("multi_simlex.average", "spearman") == pytest.approx(0)
    assert [score.count for score in report.scores] == [4, 3, 7]
    assert not report.failures and not report.notes


def test_ties_share_their_rank(tmp_path):
    """Cosine ranks 1.5 1.5 3 against 1 2 3: Pearson of the ranks is sqrt(3)/2."""
    _write(tmp_path / "simlex/simlex-x.txt", "a\tb\tc\nx\ty\t1\ny\tx\t2\nx\tx\t3\n")
    assert _run(tmp_path).get("simlex.x", "spearman") == pytest.approx(100 * 3**0.5 / 2)


def test_simlex_with_carriage_returns(tmp_path):
    """CR alone ends a line, and the language is what follows `simlex-`."""
    _write(tmp_path / "simlex/simlex-german.txt", "word 1\tword 2\tscore\rx\tx\t9\rx\ty\t1")
    assert _run(tmp_path).get("simlex.german", "spearman") == pytest.approx(100)


def test_cross_lingual_pairs(tmp_path):
    """They are read in Multi-SimLex's columns and make a data set of their own."""
    _write(tmp_path / "cross_lingual_simlex/aa-bb.tsv", HEADER + "1\tx\tx\tn\t6\n2\tx\ty\tn\t0\n")
    report = _run(tmp_path)
    assert [score.task for score in report.scores] == [
        "cross_lingual_simlex.aa-bb",
        "cross_lingual_simlex.average",
    ]


def test_a_zero_vector_has_cosine_zero(tmp_path):
    """Its cosine is 0, between -1 and 1."""
    _write(tmp_path / "simlex/simlex-x.txt", "a\tb\tc\nx\t-x\t0\nx\t0\t1\nx\tx\t2\n")
    assert _run(tmp_path).get("simlex.x", "spearman") == pytest.approx(100)


def test_malformed_lines_are_counted(tmp_path):
    """Too few columns, no number, an infinite one, an empty word: skipped and told."""
    bad = "3\tx\ty\tn\n4\tx\ty\tn\tmany\n5\tx\ty\tn\tinf\n6\t\ty\tn\t1\n\n"
    _write(tmp_path / "multi_simlex/aa.tsv", HEADER + "1\tx\tx\tn\t6\n2\tx\ty\tn\t0\n" + bad)
    report = _run(tmp_path)
    assert report.get("multi_simlex.aa", "spearman") == pytest.approx(100)
    assert report.notes == ["multi_simlex.aa: 4 malformed lines skipped"]


def test_a_bad_file_does_not_stop_others(tmp_path):
    """One failure line names the file; the average is over the rest."""
    _write(tmp_path / "multi_simlex/aa.tsv", HEADER + "nonsense\n")
    _write(tmp_path / "multi_simlex/bb.tsv", HEADER + "1\tx\tx\tn\t6\n2\tx\ty\tn\t0\n")
    report = _run(tmp_path)
    assert len(report.failures) == 1 and "aa.tsv" in report.failures[0]
    assert report.get("multi_simlex.average", "spearman") == pytest.approx(100)


def test_no_data(tmp_path):
    """The error says what to put where."""
    with pytest.raises(UserError, match="multi_simlex"):
        _run(tmp_path)


def test_empty_lines():
    """No pair at all is an error that names the source."""
    with pytest.raises(UserError, match="somewhere: 0 word pairs"):
        parse_pairs([], "somewhere")


def test_real_files(data_dir):
    """All pairs are read, without a warning, a note or a failure."""
    report, data = SuiteReport(), DataFolder(data_dir)
    evaluate(lambda texts: np.array([[len(t), 1.0] for t in texts]), data, Options(), report)
    counts = {score.task: score.count for score in report.scores}
    assert counts["multi_simlex.zh"] == 1888 and counts["simlex.german"] == 999
    assert not (report.failures or report.notes or data.warnings)


def test_crossed_pairs_by_hand():
    """Both words are crossed, scores averaged; too different scores and unshared rows are left."""
    english = {"1": ("arm", "muscle", 1.0), "2": ("big", "small", 0.2), "3": ("x", "y", 5.0)}
    spanish = {"1": ("brazo", "músculo", 2.2), "2": ("grande", "chico", 1.5), "4": ("z", "w", 1.0)}
    pairs = crossed(english, spanish)
    assert list(zip(pairs.first, pairs.second)) == [("arm", "músculo"), ("muscle", "brazo")]
    assert pairs.gold.tolist() == [1.6, 1.6]


def test_cross_lingual_scores(tmp_path):
    """Made of the languages that are there, unless a file gives them."""
    header = "id\tword1\tword2\tpos\tscore\n"
    for language in ("en", "es", "fi"):
        rows = [f"{i}\t{language}{i}\tx{i}\tnouns\t{i % 6}\n" for i in range(1, 9)]
        path = tmp_path / "multi_simlex" / f"{language}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(header + "".join(rows))
    given = tmp_path / "cross_lingual_simlex/en-es.tsv"
    given.parent.mkdir()
    given.write_text(header + "1\ta\tb\tn\t1\n2\tc\td\tn\t2\n3\te\tf\tn\t3\n")
    report = SuiteReport()
    evaluate(toy.encode, DataFolder(tmp_path), Options(), report)
    counts = {score.task: score.count for score in report.scores}
    assert counts["cross_lingual_simlex.en-es"] == 3
    assert counts["cross_lingual_simlex.en-fi"] == counts["cross_lingual_simlex.es-fi"] == 16
