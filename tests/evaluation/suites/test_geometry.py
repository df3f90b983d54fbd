"""Geometry: every measure against its formula in plain loops, and spaces with known values."""

import math

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.metrics import geometry
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites.geometry import Options, evaluate, positive_pairs


def _vectors(count=40, dim=5, seed=0, shift=0.3):
    return np.random.default_rng(seed).normal(size=[count, dim]) + shift


def test_isotropy_by_loops():
    """Smallest over largest sum of exponentials, both signs of each eigenvector."""
    vectors = _vectors()
    sums = []
    for direction in np.linalg.eigh(vectors.T @ vectors)[1].T:
        for sign in (1, -1):
            sums.append(sum(math.exp(sign * float(direction @ v)) for v in vectors))
    assert geometry.isotropy_score(vectors) == pytest.approx(min(sums) / max(sums))


def test_isotropy_of_known_spaces():
    """1 where all axes are alike; e^-2t for one vector of length t, of which no sum overflows."""
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    assert geometry.isotropy_score(axes) == pytest.approx(1.0)
    assert geometry.isotropy_score(np.array([[0.5, 0.0]])) == pytest.approx(math.exp(-1.0))
    assert geometry.isotropy_score(np.array([[5000.0, 0.0]])) == 0.0
    assert geometry.isotropy_score(np.zeros([4, 2])) == 1.0


def test_isotropy_does_not_depend_on_order_or_rotation():
    """A rotation turns the eigenvectors with the vectors."""
    vectors = _vectors()
    rotation = np.linalg.qr(_vectors(5, 5, seed=1))[0]
    for other in (vectors[::-1], vectors @ rotation):
        assert geometry.isotropy_score(other) == pytest.approx(geometry.isotropy_score(vectors))


def test_mean_vector_norm():
    """Of the vectors as they are: twice as long, twice the norm; 0 if centred."""
    assert geometry.mean_vector_norm(np.array([[3.0, 0.0], [3.0, 8.0]])) == pytest.approx(5.0)
    vectors = _vectors()
    norm = geometry.mean_vector_norm(vectors)
    assert geometry.mean_vector_norm(2 * vectors) == pytest.approx(2 * norm)
    assert geometry.mean_vector_norm(vectors - vectors.mean(axis=0)) == pytest.approx(0, abs=1e-12)


def test_alignment_by_loops():
    """Mean squared distance of unit vectors; the lengths do not matter."""
    first, second = _vectors(seed=1), _vectors(seed=2)
    wanted = 0.0
    for x, y in zip(first, second):
        wanted += np.sum((x / np.linalg.norm(x) - y / np.linalg.norm(y)) ** 2) / len(first)
    assert geometry.alignment(first, second) == pytest.approx(wanted)
    assert geometry.alignment(first, 7 * first) == pytest.approx(0, abs=1e-12)
    assert geometry.alignment(first, -first) == pytest.approx(4)


@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_uniformity_by_loops(monkeypatch, rows):
    """All pairs once, whatever the size of a block."""
    monkeypatch.setattr(geometry, "_ROWS", rows)
    vectors = _vectors()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    terms = [
        math.exp(-2 * float(np.sum((unit[i] - unit[j]) ** 2)))
        for i in range(len(unit))
        for j in range(i)
    ]
    wanted = math.log(sum(terms) / len(terms))
    assert geometry.uniformity(vectors) == pytest.approx(wanted, rel=1e-5)


def test_uniformity_of_known_spaces():
    """0 if all are one, -8 for a pair of opposites, -2 where one is zero: its distance is 1."""
    assert geometry.uniformity(np.ones([3, 2])) == pytest.approx(0, abs=1e-5)
    assert geometry.uniformity(np.array([[1.0, 0.0], [-3.0, 0.0]])) == pytest.approx(-8, abs=1e-5)
    assert geometry.uniformity(np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(-2, abs=1e-5)


def test_random_pairs():
    """Never a row with itself, every other pair, the same for the same seed."""
    cosines = geometry.random_pair_cosines(np.eye(3), 500, seed=0)
    assert not cosines.any()
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    drawn = geometry.random_pair_cosines(vectors, 3000, seed=1)
    assert np.mean(drawn == 0) == pytest.approx(1 / 3, abs=0.05)
    assert np.array_equal(drawn, geometry.random_pair_cosines(vectors, 3000, seed=1))
    assert not np.array_equal(drawn, geometry.random_pair_cosines(vectors, 3000, seed=2))


def test_histogram():
    """Shares that sum to 1; both ends count, and what rounding put beyond them."""
    assert geometry.histogram(np.array([-1.0, 1.0, 1.0 + 1e-9, 0.1]), 4) == [0.25, 0, 0.25, 0.5]
    assert geometry.histogram(np.zeros(0), 4) == []


@pytest.mark.parametrize(
    "measure", [geometry.isotropy_score, geometry.mean_vector_norm, geometry.uniformity]
)
def test_bad_vectors(measure):
    """NaN, no rows, no matrix."""
    for vectors in (np.array([[np.nan, 1.0], [0.0, 1.0]]), np.zeros([0, 2]), np.zeros(3)):
        with pytest.raises(ValueError):
            measure(vectors)


def test_too_few_vectors():
    """One vector makes no pair; unequal sides are no pairs."""
    one = np.ones([1, 2])
    for call in (
        lambda: geometry.uniformity(one),
        lambda: geometry.random_pair_cosines(one, 3, 0),
        lambda: geometry.alignment(one, np.ones([2, 2])),
    ):
        with pytest.raises(ValueError, match="need"):
            call()


def test_positive_pairs():
    """Strictly above; none is an error that names the option."""
    pairs = ScoredPairs(["a", "b", "c"], ["d", "e", "f"], np.array([4.0, 4.2, 5.0]))
    kept = positive_pairs(pairs, 4.0)
    assert (kept.first, kept.second, kept.gold.tolist()) == (["b", "c"], ["e", "f"], [4.2, 5.0])
    with pytest.raises(UserError, match="min_score"):
        positive_pairs(pairs, 5.0)


def _encode(texts):
    return np.array([[len(t), t.count("a"), 1.0] for t in texts], np.float32)


def test_suite(tmp_path):
    """Each file is a task named after it, cut to max_texts; STS-B has the alignment."""
    (tmp_path / "mirror_bert").mkdir()
    (tmp_path / "mirror_bert/words.txt").write_text("a\naa\n\nbbb\ncccc\n")
    (tmp_path / "mirror_bert/LICENSE.txt").write_text("a\nb\n")
    rows = ["g\tf\ty\t1\t5\taa\tbb", "g\tf\ty\t2\t4\tc\tddd", "g\tf\ty\t3\t4.5\ta\taa"]
    (tmp_path / "sts-dev.csv").write_text("\n".join(rows))
    report, data = SuiteReport(), DataFolder(tmp_path)
    evaluate(_encode, data, Options(max_texts=3, bins=4, random_pairs=50), report)
    assert not report.failures
    vectors = _encode(["a", "aa", "bbb"])
    assert report.get("words", "isotropy") == geometry.isotropy_score(vectors)
    assert report.get("words", "isotropy_unit") == pytest.approx(
        geometry.isotropy_score(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)), rel=1e-5
    )
    assert report.get("words", "mean_vector_norm") == geometry.mean_vector_norm(vectors)
    assert report.get("words", "uniformity") == geometry.uniformity(vectors)
    aligned = geometry.alignment(_encode(["aa", "a"]), _encode(["bb", "aa"]))
    assert report.get("sts-dev", "alignment") == pytest.approx(aligned)
    assert report.get("words", "alignment") is None
    drawing = report.figures["cosine_histogram"]
    assert sorted(drawing) == ["sts-dev", "words"]
    assert drawing["words"]["edges"] == [-1, -0.5, 0, 0.5, 1] and drawing["words"]["positive"] == []
    assert sum(drawing["sts-dev"]["positive"]) == pytest.approx(1)


def test_missing_files(tmp_path):
    """Both parts fail by themselves and say what was expected."""
    report = SuiteReport()
    evaluate(_encode, DataFolder(tmp_path), Options(), report)
    assert [line.partition(":")[0] for line in report.failures] == ["texts", "sts-dev"]


def test_one_text(tmp_path):
    """A file of one text is a failure, the other file is measured."""
    (tmp_path / "mirror_bert").mkdir()
    (tmp_path / "mirror_bert/one.txt").write_text("a\n")
    (tmp_path / "mirror_bert/two.txt").write_text("a\nb\n")
    report = SuiteReport()
    evaluate(_encode, DataFolder(tmp_path), Options(), report)
    assert "need at least 2" in report.failures[0] and report.get("two", "uniformity") is not None


@pytest.mark.parametrize("name", ["max_texts", "random_pairs", "bins"])
def test_options(name):
    """What would leave nothing to measure is refused."""
    with pytest.raises(ValueError, match=name):
        Options(**{name: 0})


def test_real_files(data_dir):
    """Every file of texts and STS-B's 1,500 pairs are measured."""
    report, data = SuiteReport(), DataFolder(data_dir)
    evaluate(_encode, data, Options(max_texts=500), report)
    assert not report.failures and not data.warnings
    assert {"en_words_top_10k", "sts-dev"} < {score.task for score in report.scores}
    assert [s.count for s in report.scores if s.metric == "alignment"] == [208]
