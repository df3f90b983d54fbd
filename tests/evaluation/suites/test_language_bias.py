"""Self-language bias: hits by loops, scores of a folder."""

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.metrics.principal_components import PrincipalComponentRemoval
from official_cmlm.evaluation.suites import language_bias
from official_cmlm.evaluation.suites.language_bias import bias
from tests.evaluation import toy


def _pool(rows=25, dim=6, apart=3.0, noise=0.5):
    """Writes the same meanings in three languages, each moved its own way."""
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


def test_zeros_find_the_first_that_is_not_themselves():
    """All are equally far: the first sentence's neighbour is the second, all others' the first."""
    zeros = {"en": np.zeros([2, 3]), "de": np.zeros([2, 3])}
    results = bias(zeros, zeros)
    assert [results[code]["share_en"] for code in zeros] == [100.0, 100.0]
    assert [results[code]["accuracy"] for code in zeros] == [0.0, 50.0]


def _write(folder, name, sentences):
    toy.write(folder / f"{name}.tsv", [f"{sentence}\tother\t1" for sentence in sentences])


def _write_split(root, split, rows=4, languages=None):
    """Writes some of SENTENCES as XTREME names them."""
    for language in languages or SENTENCES:
        _write(root / "pawsx", f"{split}-{language}", SENTENCES[language][:rows])


def _run(root, **options):
    return toy.run(language_bias, toy.read_numbers, root, **options)


SENTENCES = {
    "en": ["1 0 0", "0 1 0", "0 0 1", "1 1 0"],
    "de": ["9 1 0", "0 9 1", "1 0 9", "9 9 1"],
    "zh-CN": ["9 0 1", "1 9 0", "0 1 9", "9 9 2"],
}


def test_every_language_of_a_folder_is_scored(tmp_path):
    """Every language's shares before and after, and their mean."""
    _write_split(tmp_path, "dev")
    report = _run(tmp_path)
    assert not report.failures
    metrics = ["share_en", "share_de", "share_zh-CN", "share_own", "accuracy"]
    expected = {(t, m + s) for t in SENTENCES for m in metrics for s in ("", "_pcr")}
    expected |= {("all", m + s) for m in ("share_own", "accuracy") for s in ("", "_pcr")}
    assert {(score.task, score.metric) for score in report.scores} == expected
    for metric in ("share_own", "accuracy_pcr"):
        mean = np.mean([report.get(language, metric) for language in SENTENCES])
        assert report.get("all", metric) == pytest.approx(mean)
    assert {score.count for score in report.scores if score.task == "en"} == {4}


def test_sides_reach_the_retrieval(tmp_path):
    """The whole pool but the query is searched; `queries` leaves the candidates as they are."""
    pool = {language: vectors.round(4) for language, vectors in sorted(_pool().items())}
    for language, vectors in pool.items():
        _write(tmp_path / "pawsx", f"dev-{language}", toy.as_numbers(vectors))
    removal = PrincipalComponentRemoval.fit(pool)
    removed = {language: removal(vectors, language) for language, vectors in pool.items()}
    for sides, candidates in (("both", removed), ("queries", pool)):
        report = _run(tmp_path, sides=sides)
        for suffix, expected in (
            ("", _bias_by_loops(pool, pool)),
            ("_pcr", _bias_by_loops(removed, candidates)),
        ):
            assert len({scores["share_own"] for scores in expected.values()}) > 1
            for language, scores in expected.items():
                values = {name: report.get(language, name + suffix) for name in scores}
                assert values == pytest.approx(scores)


def test_split_is_test_then_dev_unless_named(tmp_path):
    """One split is used, and a note says which."""
    _write_split(tmp_path, "dev", 3)
    _write_split(tmp_path, "translate-train", 2)
    assert "3 rows in 3 languages of dev-de.tsv" in _run(tmp_path).notes[0]
    _write_split(tmp_path, "test")
    assert _run(tmp_path).notes[0].startswith("4 rows")
    assert _run(tmp_path, split="translate-train").notes[0].startswith("2 rows")
    assert _run(tmp_path, split="test", max_rows=2).notes[0].startswith("2 rows")
    with pytest.raises(UserError, match="its splits are dev, test, translate-train"):
        _run(tmp_path, split="train")


@pytest.mark.parametrize(
    ("german", "message"),
    [
        (None, "one language only"),
        ("NS\ta\t1\n" * 4, "no row has a sentence in each of de, en"),
        ("a\tb\t1\n" * 3, r"dev-de.tsv has 3 rows.*dev-en.tsv has 4"),
    ],
)
def test_nothing_to_compare_is_an_error(tmp_path, german, message):
    """One language, no usable row, rows that are not aligned."""
    _write_split(tmp_path, "dev", 4, ["en"])
    if german:
        toy.write_text(tmp_path / "pawsx/dev-de.tsv", german)
    with pytest.raises(UserError, match=message):
        _run(tmp_path)


def _write_google(root, split, rows, header="id\tsentence1\tsentence2\tlabel"):
    """Writes files as Google ships them: language -> first sentences."""
    for language, sentences in rows.items():
        lines = [f"{i}\t{text}\tother\t0" for i, text in enumerate(sentences, 1)]
        toy.write(root / language / f"{split}.tsv", [header, *lines])


@pytest.mark.parametrize("below", ["pawsx", "pawsx/x-final", "x-final"])
def test_files_of_google_are_read(tmp_path, below):
    """Folders of languages, also inside of the archive's folder; `test_2k` is the split `test`."""
    languages = {"en": SENTENCES["en"], "de": SENTENCES["de"], "zh": SENTENCES["zh-CN"]}
    _write_google(tmp_path / below, "test_2k", languages)
    _write_google(tmp_path / below, "dev_2k", {k: v[:3] for k, v in languages.items()})
    _write_google(tmp_path / below, "translated_train", {k: v[:2] for k, v in languages.items()})
    report = _run(tmp_path)
    inside = "x-final/" if below == "pawsx/x-final" else ""
    assert report.notes == [
        f"4 rows in 3 languages of {inside}de/test_2k.tsv {inside}en/test_2k.tsv "
        f"{inside}zh/test_2k.tsv"
    ]
    for name in ("dev", "dev_2k"):
        assert _run(tmp_path, split=name).notes[0].startswith("3 rows")
    assert _run(tmp_path, split="train").notes[0].startswith("2 rows")


def test_xtremes_test_set_needs_no_labels(tmp_path):
    """Two columns have all that is needed: the default takes it, though `dev` has labels."""
    _write_split(tmp_path, "dev", 2)
    for language, sentences in SENTENCES.items():
        lines = [f"{sentence}\tother" for sentence in sentences]
        (tmp_path / f"pawsx/test-{language}.tsv").write_text("\r\n".join(lines) + "\r\n")
    assert _run(tmp_path).notes == [
        "4 rows in 3 languages of test-de.tsv test-en.tsv test-zh-CN.tsv"
    ]


def test_a_split_that_lacks_something_is_not_the_default(tmp_path):
    """The next one is taken, and a note says why; a split that is named fails."""
    _write_split(tmp_path, "dev", 3)
    for language in SENTENCES:
        (tmp_path / f"pawsx/test-{language}.tsv").write_text("one\ntwo\n")
    report = _run(tmp_path)
    assert "left out: " in report.notes[0] and "test-de.tsv: 1 columns" in report.notes[0]
    assert "known are a header with sentence1; or no header and" in report.notes[0]
    assert report.notes[1].startswith("3 rows in 3 languages of dev-de.tsv")
    with pytest.raises(UserError, match=r"test-de\.tsv: 1 columns and no header; known are"):
        _run(tmp_path, split="test")
    for language in ("de", "zh-CN"):
        (tmp_path / f"pawsx/test-{language}.tsv").unlink()
    assert "test has files of one language only" in _run(tmp_path).notes[0]


def test_only_chosen_languages_are_scored(tmp_path):
    """They make the pool; a split without one of them is left out, an unknown one is an error."""
    _write_split(tmp_path, "dev")
    _write_split(tmp_path, "test", 3, ("en", "zh-CN"))
    report = _run(tmp_path, languages=["de", "EN"])
    assert {score.task for score in report.scores} == {"de", "en", "all"}
    assert "test has no file of de" in report.notes[0]
    assert report.notes[1] == (
        "4 rows in 2 languages (a part that was chosen) of dev-de.tsv dev-en.tsv"
    )
    assert not report.missing and not report.failures
    with pytest.raises(UserError, match="no 'fr'; it has de, en, zh-CN"):
        _run(tmp_path, languages=["fr", "de"])


def test_too_many_components_leave_the_plain_scores(tmp_path):
    """Removal that cannot be fitted is a failure; what needs none is reported."""
    _write_split(tmp_path, "dev")
    report = _run(tmp_path, num_components=4)
    assert report.get("all", "accuracy") is not None
    assert report.get("all", "accuracy_pcr") is None
    assert "lower num_components" in report.failures[0]
    assert not _run(tmp_path, pcr=False).failures
