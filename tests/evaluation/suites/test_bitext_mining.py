"""Bitext mining: BUCC's files, what counts as right, and real sentences."""

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.metrics.margin import mine
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.suites import bitext_mining
from official_cmlm.evaluation.suites.bitext_mining import Options, judge, unify
from tests.evaluation import toy


def test_repeated_sentences_are_mined_once_and_not_scored():
    """Their candidates have no single id; the others keep theirs."""
    source = unify([("s1", "a"), ("s2", "b"), ("s3", "a")])
    target = unify([("t1", "x"), ("t2", "y")])
    assert source.sentences == ["a", "b"] and source.ids == ["", "s2"]
    assert source.known == {"s1", "s2", "s3"}
    found = (np.array([[0, 0], [1, 1]]), np.array([1.5, 1.2]))
    scores, correct = judge(found, source, target, {("s1", "t1"), ("s2", "t2")})
    assert scores.tolist() == [1.2] and correct.tolist() == [True]


SENTENCES = toy.as_numbers(np.random.default_rng(0).normal(size=[6, 4]))


def _write(folder, split, gold, pair="de-en", reverse=False):
    """Writes SENTENCES as both sides, perhaps one in reverse order, and gold pairs of places."""
    first, second = pair.split("-")
    for language, sentences in ((first, SENTENCES), (second, SENTENCES[:: -1 if reverse else 1])):
        lines = [f"{language}-{i}\t{sentence}" for i, sentence in enumerate(sentences)]
        toy.write(folder / f"{pair}.{split}.{language}", lines)
    toy.write(folder / f"{pair}.{split}.gold", [f"{first}-{i}\t{second}-{j}" for i, j in gold])


def _run(root, **options):
    return toy.run(bitext_mining, toy.read_numbers, root, **options)


def test_splits_are_those_with_gold_files(tmp_path):
    """In the folder and in folders of pairs; the test is also cut where training was best."""
    same = [(i, i) for i in range(6)]
    vectors = unit(toy.read_numbers(SENTENCES))
    found = mine(vectors, vectors)
    best = [tuple(pair) for pair in found[0][:2].tolist()]
    _write(tmp_path / "bucc/de-en", "training", best)
    _write(tmp_path / "bucc/de-en", "test", same)
    _write(tmp_path / "bucc", "sample", [(0, 5)], "fr-en", reverse=True)
    report = _run(tmp_path)
    assert not report.failures
    assert {s.task for s in report.scores} == {"de-en.training", "de-en.test", "fr-en.sample"}
    assert report.get("de-en.test", "f1_best") == 100.0
    assert report.get("de-en.training", "recall_best") == 100.0
    assert report.get("fr-en.sample", "recall_best") == 100.0
    tuned = report.get("de-en.training", "threshold_best")
    assert tuned == pytest.approx(found[1][1:3].mean())
    assert report.get("de-en.test", "recall_training") == pytest.approx(100 * 2 / 6)
    assert report.get("de-en.test", "precision_training") == 100.0
    assert report.get("de-en.training", "f1_training") is None
    assert report.get("fr-en.sample", "f1_training") is None
    fixed = int((found[1] >= 1.06).sum())
    assert report.get("de-en.test", "recall_fixed") == pytest.approx(100 * fixed / 6)
    assert {s.count for s in report.scores if s.task == "de-en.training"} == {2}


def test_pairs_that_were_chosen(tmp_path):
    """In either order; an unknown one is an error."""
    for pair in ("de-en", "fr-en"):
        _write(tmp_path / "bucc", "sample", [(0, 0)], pair=pair)
    for name in ("fr-en", "en-fr", "fra-eng"):
        report = _run(tmp_path, pairs=[name])
        assert {score.task for score in report.scores} == {"fr-en.sample"}
        assert not report.unscored
    with pytest.raises(
        UserError, match="bitext_mining.pairs: the data has no 'en-ru'; it has de-en"
    ):
        _run(tmp_path, pairs=["ru-en"])


def test_fixed_threshold_belongs_to_its_margin(tmp_path):
    """1.06 is a ratio's; another margin has none unless it is given."""
    _write(tmp_path / "bucc", "training", [(0, 0)])
    assert Options().fixed == 1.06
    distance = _run(tmp_path, margin="distance")
    assert distance.get("de-en.training", "f1_fixed") is None
    assert distance.get("de-en.training", "threshold_best") < 1
    assert _run(tmp_path, margin="absolute", threshold=0.99).get(
        "de-en.training", "recall_fixed"
    ) == pytest.approx(100.0)
    assert _run(tmp_path, threshold=100.0).get("de-en.training", "f1_fixed") == 0.0


def test_bad_lines_and_unknown_ids_are_noted(tmp_path):
    """Skipped lines are counted; unknown gold pairs count as not found."""
    _write(tmp_path / "bucc", "sample", [(0, 0), (1, 1), (77, 1)])
    with (tmp_path / "bucc/de-en.sample.de").open("a") as file:
        file.write(f"no tab\n\nde-91\t\nde-90\t{SENTENCES[5]}\n")
    report = _run(tmp_path)
    assert report.get("de-en.sample", "recall_best") == pytest.approx(200 / 3)
    notes = "\n".join(report.notes)
    assert "3 of 10 lines of de-en.sample.de skipped" in notes
    assert "2 of 7 lines of de-en.sample.de have a sentence" in notes
    assert "1 of 3 gold pairs have ids" in notes


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "de-en.sample.gold").write_text(""), "no gold pair"),
        (lambda folder: (folder / "de-en.sample.gold").write_text("a\tb\n"), "none of its 1 pairs"),
        (lambda folder: (folder / "de-en.sample.en").write_text("\n"), "no sentence"),
        (lambda folder: (folder / "de-en.sample.en").unlink(), "missing"),
    ],
)
def test_one_broken_split_does_not_stop_the_others(tmp_path, break_it, message):
    """Empty gold, foreign gold, an empty or a missing side: one failure line."""
    _write(tmp_path / "bucc", "sample", [(0, 0)])
    _write(tmp_path / "bucc", "training", [(0, 0)])
    break_it(tmp_path / "bucc")
    report = _run(tmp_path)
    assert len(report.unscored) == 1 and message in report.unscored[0]
    assert {score.task for score in report.scores} == {"de-en.training"}
