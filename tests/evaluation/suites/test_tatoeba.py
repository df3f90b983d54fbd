"""Tatoeba: both directions, the means, removal, and what is in the folder."""

import functools

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.metrics.principal_components import PrincipalComponentRemoval
from official_cmlm.evaluation.suites import tatoeba
from official_cmlm.evaluation.suites.tatoeba import (
    XTREME,
    Options,
    accuracies,
    without_components,
)
from tests.evaluation import toy


def _write(folder, code, foreign, english):
    for side, texts in ((code, foreign), ("eng", english)):
        toy.write(folder / f"tatoeba.{code}-eng.{side}", texts)


def _run(root, encode=toy.read_numbers, **options):
    return toy.run(tatoeba, encode, root, **options)


def _share_by_loops(queries, candidates):
    hits = 0
    for i, query in enumerate(queries):
        cosines = [
            query @ other / np.linalg.norm(query) / np.linalg.norm(other) for other in candidates
        ]
        hits += max(range(len(cosines)), key=lambda j: (cosines[j], -j)) == i
    return 100 * hits / len(queries)


def _languages(rows=40, dim=6, noise=0.8):
    """Draws meanings with noise, each language moved its own way and of its own scale."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=[rows, dim])
    english = meaning + noise * rng.normal(size=[rows, dim]) + 2 * np.eye(dim)[0]
    foreign = 3 * (meaning + noise * rng.normal(size=[rows, dim]) - 2 * np.eye(dim)[1])
    return english, foreign


@pytest.mark.parametrize("sides", ["both", "queries"])
@pytest.mark.parametrize(("number", "center"), [(1, False), (2, False), (1, True)])
def test_accuracies_are_those_of_plain_loops(sides, number, center):
    """Both directions differ, each is right, and their mean is the mean; so after removal."""
    plain = _languages()

    def compute_expected(queries, candidates, suffix):
        there, back = (_share_by_loops(queries[i], candidates[1 - i]) for i in (0, 1))
        names = ("accuracy_from_english", "accuracy_to_english", "accuracy_mean")
        return dict(zip([name + suffix for name in names], (there, back, (there + back) / 2)))

    before = compute_expected(plain, plain, "")
    assert accuracies(plain, plain) == pytest.approx(before)
    assert before["accuracy_from_english"] != before["accuracy_to_english"]
    fit = functools.partial(PrincipalComponentRemoval.fit, num_components=number, center=center)
    by_hand = [fit({"one": side})(side, "one") for side in plain]
    vectors = without_components(plain, Options(True, number, center))
    both = sides == "both"
    assert accuracies(vectors, vectors if both else plain, "_pcr") == pytest.approx(
        compute_expected(by_hand, by_hand if both else plain, "_pcr")
    )


def test_languages_are_those_of_the_folder(tmp_path):
    """XTREME's languages under its code, others under their own; means are over languages."""
    _write(tmp_path / "tatoeba/v1", "swh", ["1 0", "0 1", "1 1", "1 -1"], ["1 0", "0 1"] * 2)
    _write(tmp_path / "tatoeba/v1", "xho", ["1 0", "0 1"], ["1 0", "0 1"])
    (tmp_path / "tatoeba/v1/README").write_text("no data")
    report = _run(tmp_path, pcr=False)
    assert {score.task for score in report.scores} == {"sw", "xho", "macro"}
    assert not any(score.metric.endswith("_pcr") for score in report.scores)
    # Copies of English: the second pair is found in its first copy.
    assert report.get("sw", "accuracy_to_english") == 50.0
    assert report.get("xho", "accuracy_mean") == 100.0
    assert report.get("macro", "accuracy_to_english") == 75.0
    counts = {score.task: score.count for score in report.scores}
    assert counts == {"sw": 4, "xho": 2, "macro": 2}
    (note,) = report.notes
    assert "35 of XTREME's 36" in note and " zh" in note and " sw" not in note


def test_means_over_groups_need_all_and_leave_out_others(tmp_path):
    """With all 36 there is a mean over them, to which others add nothing; also of 14 and 112."""
    for code in (*XTREME, "pol"):
        _write(tmp_path / "tatoeba", code, ["1 0", "0 1"], ["1 0", "0 1"])
    _write(tmp_path / "tatoeba", "xho", ["1 0", "0 1"], ["0 1", "1 0"])
    report = _run(tmp_path, pcr=False)
    assert report.get("macro36", "accuracy_mean") == 100.0
    assert report.get("macro14", "accuracy_mean") == 100.0
    assert report.get("macro", "accuracy_mean") == pytest.approx(100 * 37 / 38)
    assert not report.notes and report.get("macro112", "accuracy_mean") is None
    for i in range(112 - 38):
        _write(tmp_path / "tatoeba", f"x{i}", ["1 0", "0 1"], ["0 1", "1 0"])
    assert _run(tmp_path, pcr=False).get("macro112", "accuracy_mean") == pytest.approx(3700 / 112)
    (tmp_path / "tatoeba/tatoeba.cmn-eng.cmn").unlink()
    report = _run(tmp_path, pcr=False)
    assert report.get("macro36", "accuracy_mean") is report.get("macro14", "accuracy_mean") is None
    assert [one.task for one in report.missing] == ["zh"]
    assert report.notes[0].endswith(" missing: zh")


@pytest.mark.parametrize("languages", [["deu", "fra"], ["de", "fr"], ["FR", "deu"]])
def test_only_chosen_languages_are_scored(tmp_path, languages):
    """Either code selects a language; the mean over a part is named as such; none is missing."""
    for code in ("deu", "fra", "ita", "xho"):
        _write(tmp_path, code, ["1 0", "0 1"], ["1 0", "0 1"])
    (tmp_path / "tatoeba.ita-eng.eng").unlink()
    report = _run(tmp_path, languages=languages)
    assert {score.task for score in report.scores} == {"de", "fr", "macro of de+fr"}
    assert report.notes == ["macro of de+fr: a part that was chosen, 2 of 4 languages: de fr"]
    assert not report.missing and not report.failures
    with pytest.raises(UserError, match=r"languages: the data has no 'es'; it has deu, fra, ita"):
        _run(tmp_path, languages=["es"])


def test_rows_that_differ_name_both_files(tmp_path):
    """One bad language is a failure line with both files; the others are scored."""
    _write(tmp_path, "deu", ["1 0", "0 1", "1 1"], ["1 0", "0 1"])
    _write(tmp_path, "fra", ["1 0", "0 1"], ["1 0", "0 1"])
    _write(tmp_path, "ita", [], [])
    report = _run(tmp_path)
    assert report.get("fr", "accuracy_mean") == 100.0
    failed = dict(line.split(": ", 1) for line in report.failures)
    assert set(failed) == {"de", "it"}
    assert "deu-eng.deu has 3 rows" in failed["de"] and "deu-eng.eng has 2" in failed["de"]


def test_too_many_components_leave_the_plain_scores(tmp_path):
    """Removal that cannot be fitted is a failure; what needs none is reported."""
    _write(tmp_path, "fra", ["1 0", "0 1"], ["1 0", "0 1"])
    report = _run(tmp_path, num_components=3)
    assert report.get("fr", "accuracy_mean") == 100.0
    assert report.get("fr", "accuracy_mean_pcr") is None
    assert "lower num_components" in report.failures[0]
