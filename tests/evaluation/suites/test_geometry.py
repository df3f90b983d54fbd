"""The geometry suite: its scores, positive pairs, missing files."""

import csv
import io

import numpy as np
import pytest

from official_cmlm.evaluation.metrics import geometry
from official_cmlm.evaluation.suites import geometry as geometry_suite
from tests.evaluation import toy


def _encode(texts):
    return np.array([[len(t), t.count("a"), 1.0] for t in texts], np.float32)


def test_scores_are_the_measures_of_each_file(tmp_path):
    """Each file is a task named after it, cut to max_texts; STS-B has the alignment."""
    for name, texts in (("words", ["a", "aa", "", "bbb", "cccc"]), ("LICENSE", "ab"), ("one", "a")):
        toy.write(tmp_path / f"mirror_bert/{name}.txt", texts)
    rows = ["g\tf\ty\t1\t5\taa\tbb", "g\tf\ty\t2\t4\tc\tddd", "g\tf\ty\t3\t4.5\ta\taa"]
    (tmp_path / "sts-dev.csv").write_text("\n".join(rows))
    report = toy.run(geometry_suite, _encode, tmp_path, max_texts=3)
    assert report.failures[0].startswith("one: one: 1 texts; need at least 2")
    assert len(report.failures) == 1
    vectors = _encode(["a", "aa", "bbb"])
    assert report.get("words", "isotropy") == geometry.isotropy_score(vectors)
    rows = np.exp(vectors @ np.linalg.eigh(vectors.T @ vectors)[1].T).sum(axis=0)
    assert report.get("words", "isotropy_rows") <= rows.min() / rows.max()
    assert report.get("words", "isotropy_unit") == pytest.approx(
        geometry.isotropy_score(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)), rel=1e-5
    )
    assert report.get("words", "mean_vector_norm") == geometry.mean_vector_norm(vectors)
    assert report.get("words", "uniformity") == geometry.uniformity(vectors)
    aligned = geometry.alignment(_encode(["aa", "a"]), _encode(["bb", "aa"]))
    assert report.get("sts-dev", "alignment") == pytest.approx(aligned)
    assert report.get("words", "alignment") is None
    _, failure = toy.run(geometry_suite, _encode, tmp_path, min_score=5).failures
    assert failure == "sts-dev: no pair has a score above 5; lower geometry.min_score"


def test_question_pairs_have_mean_cosines(tmp_path):
    """Mean cosines of both kinds, by hand; malformed lines are counted."""
    vectors = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.0, 1.0]}
    rows = ["1\t1\t2\ta\tb\t1", "2\t1\t2\ta\tc\t0", "3\t1\t2\tb\tc\t0", "4\ta\tb\t1"]
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    toy.write(tmp_path / "qqp/dev.tsv", [header, *rows])
    report = toy.run(geometry_suite, toy.lookup(vectors), tmp_path)
    assert report.get("qqp", "cosine_positive") == pytest.approx(0.6)
    assert report.get("qqp", "cosine_negative") == pytest.approx(0.4)
    assert "qqp: 1 malformed lines skipped" in report.notes


def test_question_pairs_of_kaggle_are_read(tmp_path):
    """The paper's file, where it is: commas, quotation marks and line ends within quoted cells."""
    vectors = {'a, "x"': [1.0, 0.0], "b\nb": [0.6, 0.8], "c": [0.0, 1.0]}
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(["id", "qid1", "qid2", "question1", "question2", "is_duplicate"])
    rows.writerow([1, 1, 2, 'a, "x"', "b\nb", 1])
    rows.writerows([[2, 1, 2, 'a, "x"', "c", 0], [3, 4]])
    toy.write(tmp_path / "qqp/train.csv", table.getvalue().splitlines())
    toy.write(tmp_path / "qqp/dev.tsv", ["of another form"])
    report = toy.run(geometry_suite, toy.lookup(vectors), tmp_path)
    assert report.get("qqp", "cosine_positive") == pytest.approx(0.6)
    assert report.get("qqp", "cosine_negative") == pytest.approx(0.0)
    assert "qqp: 1 malformed lines skipped" in report.notes
