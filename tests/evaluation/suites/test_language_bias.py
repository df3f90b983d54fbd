"""Self-language bias: hits by loops, the map, scores and figures of a folder."""

import json

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.metrics.principal_components import PrincipalComponentRemoval
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites.language_bias import Options, bias, evaluate, hits, plane


def _pool(rows=25, dim=6, apart=3.0, noise=0.5):
    """The same meanings in three languages, each moved its own way."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=[rows, dim])
    return {
        language: (meaning + noise * rng.normal(size=[rows, dim]) + apart * np.eye(dim)[i]).astype(
            np.float32
        )
        for i, language in enumerate(["en", "de", "zh"])
    }


def _bias_by_loops(queries, candidates):
    def cosine(x, y):
        return float(x @ y) / float(np.linalg.norm(x) * np.linalg.norm(y))

    scores = {}
    for own, vectors in queries.items():
        counts, right = dict.fromkeys(queries, 0), 0
        for i, query in enumerate(vectors):
            others = [
                (cosine(query, other), language, j)
                for language, side in candidates.items()
                for j, other in enumerate(side)
                if (language, j) != (own, i)
            ]
            _, language, row = max(others)
            counts[language] += 1
            right += row == i
        scores[own] = {f"share_{name}": 100 * n / len(vectors) for name, n in counts.items()}
        scores[own] |= {
            "share_own": 100 * counts[own] / len(vectors),
            "accuracy": 100 * right / len(vectors),
        }
    return scores


def test_shares_are_those_of_plain_loops():
    """Of the whole pool but the query itself, before and after removal, on one side or both."""
    pool = _pool()
    removal = PrincipalComponentRemoval.fit(pool)
    removed = {language: removal(vectors, language) for language, vectors in pool.items()}
    for queries, candidates in [(pool, pool), (removed, removed), (removed, pool)]:
        found, expected = bias(queries, candidates), _bias_by_loops(queries, candidates)
        assert found.keys() == expected.keys()
        for language in expected:
            assert found[language] == pytest.approx(expected[language])


def test_shares_of_a_query_language_sum_to_100():
    """Every query has one neighbour."""
    for scores in bias(_pool(), _pool()).values():
        assert sum(scores[f"share_{name}"] for name in ("en", "de", "zh")) == pytest.approx(100)


def test_bias_by_hand():
    """English finds English, German finds its translation."""
    pool = {
        "en": np.array([[1, 0.1], [1, 0.0]]),
        "de": np.array([[0.5, 1], [1, -2]]),
    }
    language, row = hits(pool, pool)
    assert language.tolist() == [[0, 0], [0, 0]]
    assert row.tolist() == [[1, 0], [0, 1]]
    assert bias(pool, pool) == {
        "en": {"share_en": 100.0, "share_de": 0.0, "share_own": 100.0, "accuracy": 0.0},
        "de": {"share_en": 100.0, "share_de": 0.0, "share_own": 0.0, "accuracy": 100.0},
    }


def test_copies_in_all_languages_find_each_other():
    """An encoder blind to languages always answers with a translation, the first of equal ones."""
    vectors = np.eye(4, dtype=np.float32)
    scores = bias({"en": vectors, "de": vectors}, {"en": vectors, "de": vectors})
    for own, other in (("en", "de"), ("de", "en")):
        assert scores[own]["accuracy"] == scores[own][f"share_{other}"] == 100.0


def test_zeros_find_the_first_that_is_not_themselves():
    """All are equally far: the first sentence's neighbour is the second, all others' the first."""
    zeros = {"en": np.zeros([2, 3]), "de": np.zeros([2, 3])}
    language, row = hits(zeros, zeros)
    assert language.tolist() == [[0, 0], [0, 0]] and row.tolist() == [[1, 0], [0, 0]]


def test_removal_undoes_the_bias():
    """Languages that lie apart mostly find themselves; without their directions they do not."""
    pool = _pool(apart=6.0, noise=0.2)
    removal = PrincipalComponentRemoval.fit(pool)
    removed = {language: removal(vectors, language) for language, vectors in pool.items()}
    before, after = bias(pool, pool), bias(removed, removed)
    assert all(before[name]["share_own"] > 90 for name in pool)
    assert all(after[name]["share_own"] < 40 for name in pool)


@pytest.mark.parametrize(
    "other",
    [
        {"en": np.ones([2, 3]), "de": np.ones([3, 3])},
        {"de": np.ones([2, 3]), "en": np.ones([2, 3])},
        {"en": np.ones([2, 3])},
    ],
)
def test_sides_that_do_not_fit_are_misuse(other):
    """Other rows, another order, a language too few."""
    with pytest.raises(ValueError, match="same languages"):
        hits({"en": np.ones([2, 3]), "de": np.ones([2, 3])}, other)


def test_map_shows_the_two_axes_of_most_variance():
    """Distances within a plane are kept, whatever its place in the space; signs are settled."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 12)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    turned = circle @ np.linalg.qr(rng.normal(size=[5, 5]))[0][:2]
    drawn = plane({"en": turned[:6], "de": turned[6:]})
    points = np.array(drawn["en"] + drawn["de"])

    def distances(rows):
        return np.linalg.norm(rows[:, np.newaxis] - rows, axis=2)

    np.testing.assert_allclose(distances(points), distances(circle), atol=1e-5)
    assert points[:, 0].var() >= points[:, 1].var()
    mirrored = plane({"en": -turned[:6], "de": -turned[6:]})
    np.testing.assert_allclose(mirrored["en"], -np.array(drawn["en"]), atol=1e-5)


def test_axes_are_those_of_the_centred_vectors():
    """Variances along the axes are the largest eigenvalues of the covariance of unit rows."""
    pool = _pool()
    points = np.concatenate(list(plane(pool).values()))
    rows = np.concatenate(list(pool.values())).astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    largest = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1][:2]
    np.testing.assert_allclose(points.var(axis=0), largest, rtol=1e-4)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-6)


def test_map_is_cut_and_works_for_thin_vectors():
    """At most so many sentences; one dimension has no second axis."""
    drawn = plane({"en": np.array([[1.0], [-1.0], [1.0]]), "de": np.array([[1.0]] * 3)}, rows=2)
    assert [len(points) for points in drawn.values()] == [2, 2]
    assert all(y == 0 for points in drawn.values() for _, y in points)


def _write(folder, name, sentences):
    folder.mkdir(parents=True, exist_ok=True)
    rows = [f"{sentence}\tother\t1" for sentence in sentences]
    (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")


def _encode(texts):
    """A text is its numbers."""
    return np.array([[float(part) for part in text.split()] for text in texts], np.float32)


def _run(root, **options):
    report = SuiteReport()
    evaluate(_encode, DataFolder(root), Options(**options), report)
    return report


SENTENCES = {
    "en": ["1 0 0", "0 1 0", "0 0 1", "1 1 0"],
    "de": ["9 1 0", "0 9 1", "1 0 9", "9 9 1"],
    "zh-CN": ["9 0 1", "1 9 0", "0 1 9", "9 9 2"],
}


def test_scores_and_figures_of_a_folder(tmp_path):
    """Every language's shares before and after, their mean, plain data to draw."""
    for language, sentences in SENTENCES.items():
        _write(tmp_path / "pawsx", f"dev-{language}", sentences)
    report = _run(tmp_path)
    assert not report.failures
    metrics = ["share_en", "share_de", "share_zh-CN", "share_own", "accuracy"]
    expected = {(t, m + s) for t in SENTENCES for m in metrics for s in ("", "_pcr")}
    expected |= {("all", m + s) for m in ("share_own", "accuracy") for s in ("", "_pcr")}
    assert {(score.task, score.metric) for score in report.scores} == expected
    for metric in ("share_own", "accuracy_pcr"):
        mean = np.mean([report.get(language, metric) for language in SENTENCES])
        assert report.get("all", metric) == pytest.approx(mean)
    pool = {language: _encode(sentences) for language, sentences in SENTENCES.items()}
    by_loops = _bias_by_loops(pool, pool)
    assert report.get("de", "share_en") == pytest.approx(by_loops["de"]["share_en"])
    figures = json.loads(json.dumps(report.figures))
    assert figures["language_bias"]["before"]["de"]["en"] == report.get("de", "share_en")
    assert figures["language_bias"]["after"]["en"]["de"] == report.get("en", "share_de_pcr")
    drawing = figures["embedding_map"]
    assert drawing["languages"] == ["de", "en", "zh-CN"] and drawing["sentences"] == [0, 1, 2, 3]
    assert np.array(drawing["before"]["en"]).shape == np.array(drawing["after"]["de"]).shape
    assert {score.count for score in report.scores if score.task == "en"} == {4}


def test_sides_reach_the_retrieval(tmp_path):
    """`queries` leaves the candidates as they are; the mean is over languages."""
    for language, vectors in _pool().items():
        rows = [" ".join(f"{value:.4f}" for value in row) for row in vectors]
        _write(tmp_path / "pawsx", f"dev-{language}", rows)
    pool = {language: vectors.round(4) for language, vectors in sorted(_pool().items())}
    removal = PrincipalComponentRemoval.fit(pool)
    removed = {language: removal(vectors, language) for language, vectors in pool.items()}
    for sides, candidates in (("both", removed), ("queries", pool)):
        expected = _bias_by_loops(removed, candidates)
        report = _run(tmp_path, sides=sides)
        for metric in ("share_own", "accuracy"):
            values = [expected[language][metric] for language in pool]
            assert len(set(values)) > 1
            assert report.get("en", f"{metric}_pcr") == pytest.approx(expected["en"][metric])
            assert report.get("all", f"{metric}_pcr") == pytest.approx(np.mean(values))
        assert report.figures["embedding_map"]["before"] == plane(pool)
        assert report.figures["embedding_map"]["after"] == plane(removed)


def test_split_is_test_then_dev_unless_named(tmp_path):
    """One split is used, and a note says which."""
    for language, sentences in SENTENCES.items():
        _write(tmp_path / "pawsx", f"dev-{language}", sentences[:3])
        _write(tmp_path / "pawsx", f"translate-train-{language}", sentences[:2])
    assert "3 rows in 3 languages of dev-de.tsv" in _run(tmp_path).notes[0]
    for language, sentences in SENTENCES.items():
        _write(tmp_path / "pawsx", f"test-{language}", sentences)
    assert _run(tmp_path).notes[0].startswith("4 rows")
    assert _run(tmp_path, split="translate-train").notes[0].startswith("2 rows")
    assert _run(tmp_path, split="test", max_rows=2).notes[0].startswith("2 rows")
    with pytest.raises(UserError, match="its splits are dev, test, translate-train"):
        _run(tmp_path, split="train")


def test_rows_that_differ_name_both_files(tmp_path):
    """A file too short cannot be aligned."""
    _write(tmp_path / "pawsx", "dev-en", SENTENCES["en"])
    _write(tmp_path / "pawsx", "dev-de", SENTENCES["de"][:3])
    with pytest.raises(UserError, match=r"dev-de.tsv has 3 rows.*dev-en.tsv has 4"):
        _run(tmp_path)


def test_nothing_to_compare_is_said(tmp_path):
    """No folder, no file, one language, no usable row."""
    with pytest.raises(UserError, match="google-research-datasets/paws"):
        _run(tmp_path)
    (tmp_path / "pawsx").mkdir()
    with pytest.raises(UserError, match="no <split>-<lang>.tsv"):
        _run(tmp_path)
    _write(tmp_path / "pawsx", "dev-en", SENTENCES["en"])
    with pytest.raises(UserError, match="one language only"):
        _run(tmp_path)
    (tmp_path / "pawsx/dev-de.tsv").write_text("a\n" * 4)
    with pytest.raises(UserError, match="no row has a sentence in each of de, en"):
        _run(tmp_path)


def test_too_many_components_leave_the_plain_scores(tmp_path):
    """Removal that cannot be fitted is a failure; what needs none is reported."""
    for language, sentences in SENTENCES.items():
        _write(tmp_path / "pawsx", f"dev-{language}", sentences)
    report = _run(tmp_path, num_components=4)
    assert report.get("all", "accuracy") is not None
    assert report.get("all", "accuracy_pcr") is None
    assert "lower num_components" in report.failures[0]
    assert not _run(tmp_path, pcr=False).failures


@pytest.mark.parametrize("values", [{"sides": "x"}, {"num_components": 0}, {"max_rows": -1}])
def test_options_that_cannot_be_are_refused(values):
    """With the suite's name, so that the command line can say it."""
    with pytest.raises(UserError, match="language_bias: "):
        suites.options("language_bias", values)


def test_real_files(data_dir):
    """Shared letters prefer their own language; no sentence is used twice, no `NS` at all."""
    seen = []

    def encode(texts, dim=64):
        seen.append(texts)
        vectors = np.zeros([len(texts), dim], np.float32)
        for row, text in zip(vectors, texts):
            for letter in text:
                row[ord(letter) % dim] += 1
        return vectors

    report = SuiteReport()
    evaluate(encode, DataFolder(data_dir), Options(max_rows=300), report)
    assert not report.failures
    assert len(seen) >= 2
    assert all(len(set(texts)) == len(texts) == 300 and "NS" not in texts for texts in seen)
    assert report.get("en", "share_own") > 50
    assert report.get("all", "share_own") > report.get("all", "share_own_pcr")
