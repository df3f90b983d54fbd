"""Bitext mining: margins and retrieval by loops, the best threshold by trying all, BUCC's files."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.bitext_mining_suite import Options, evaluate, judge, unify
from official_cmlm.evaluation.data import DataFolder
from official_cmlm.evaluation.margin import (
    MARGINS,
    RETRIEVALS,
    Candidates,
    best_extraction,
    extract,
    margins,
    mine,
)
from official_cmlm.evaluation.nearest import unit
from official_cmlm.evaluation.report import SuiteReport


def _vectors(n=14, m=17, dim=4, seed=0):
    rng = np.random.default_rng(seed)
    return unit(rng.normal(size=[n, dim])), unit(rng.normal(size=[m, dim]))


def _mine_by_loops(source, target, k, margin, retrieval):
    """Artetxe and Schwenk's formulas, one sentence after the other."""
    cosines = [[float(np.dot(x, y)) for y in target] for x in source]
    turned = [list(column) for column in zip(*cosines)]

    def best_k(row):
        return sorted(range(len(row)), key=lambda j: (-row[j], j))[: min(k, len(row))]

    def mean(row):
        return sum(row[j] for j in best_k(row)) / len(best_k(row))

    def score(i, j):
        usual = (mean(cosines[i]) + mean(turned[j])) / 2
        cosine = cosines[i][j]
        return {"ratio": cosine / usual, "distance": cosine - usual, "absolute": cosine}[margin]

    ahead = [max(best_k(row), key=lambda j, i=i: score(i, j)) for i, row in enumerate(cosines)]
    back = [max(best_k(row), key=lambda i, j=j: score(i, j)) for j, row in enumerate(turned)]
    forward = [(i, j) for i, j in enumerate(ahead)]
    backward = [(i, j) for j, i in enumerate(back)]
    if retrieval == "forward":
        pairs = forward
    elif retrieval == "backward":
        pairs = backward
    elif retrieval == "intersect":
        pairs = [pair for pair in forward if pair in backward]
    else:
        pairs, left, right = [], set(), set()
        for i, j in sorted(forward + backward, key=lambda pair: -score(*pair)):
            if i not in left and j not in right:
                pairs.append((i, j))
                left.add(i)
                right.add(j)
    return {pair: score(*pair) for pair in pairs}


@pytest.mark.parametrize("retrieval", RETRIEVALS)
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("k", [1, 4, 50])
def test_mined_pairs_are_those_of_plain_loops(margin, retrieval, k):
    """Every margin, retrieval and size of neighbourhood, also one larger than the corpus."""
    # Positive vectors, so that no mean cosine is near 0.
    source, target = (unit(np.abs(side)) for side in _vectors())
    found = mine(source, target, k, margin, retrieval)
    expected = _mine_by_loops(source, target, k, margin, retrieval)
    pairs = [tuple(pair) for pair in found.pairs.tolist()]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == set(expected)
    np.testing.assert_allclose(found.scores, [expected[pair] for pair in pairs], rtol=1e-4)


def test_max_takes_each_sentence_once_and_the_best_first():
    """No sentence twice; the scores fall."""
    found = mine(*_vectors(), retrieval="max")
    for side in found.pairs.T:
        assert len(set(side.tolist())) == len(side)
    assert (np.diff(found.scores) <= 0).all()


def test_sides_can_be_swapped():
    """Forward from one side is backward from the other; `max` and `intersect` do not care."""
    source, target = _vectors()
    for there, back in [("forward", "backward"), ("max", "max"), ("intersect", "intersect")]:
        one, other = mine(source, target, retrieval=there), mine(target, source, retrieval=back)
        pairs = {(i, j) for j, i in other.pairs.tolist()}
        assert {tuple(pair) for pair in one.pairs.tolist()} == pairs


def test_progress_counts_every_sentence():
    """Both sides are searched."""
    done = []
    mine(*_vectors(14, 17), progress=done.append)
    assert sum(done) == 31


def test_margins_by_hand():
    """0.6 against the mean of 0.2 and 0.6; nothing over nothing is nothing."""
    cosines, first, second = np.array([0.6, 0.0]), np.array([0.2, 0.0]), np.array([0.6, 0.0])
    np.testing.assert_allclose(margins(cosines, first, second, "ratio"), [1.5, 0])
    np.testing.assert_allclose(margins(cosines, first, second, "distance"), [0.2, 0])
    np.testing.assert_allclose(margins(cosines, first, second, "absolute"), [0.6, 0])


def test_vectors_of_zeros_are_mined_without_nan():
    """They score 0."""
    found = mine(np.zeros([2, 3], np.float32), np.zeros([3, 3], np.float32))
    assert np.isfinite(found.scores).all() and not found.scores.any()


def test_margin_undoes_a_hub():
    """A target near to everything wins by cosine and loses by margin."""
    source = unit(np.array([[1, 0, 1.2], [0, 1, 1.2]]))
    target = unit(np.array([[0.6, 0.6, 1.2], [1, 0, 0.4], [0, 1, 0.4]]))
    absolute = mine(source, target, 2, "absolute", "forward").pairs.tolist()
    ratio = mine(source, target, 2, "ratio", "forward").pairs.tolist()
    assert absolute == [[0, 0], [1, 0]]
    assert ratio == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    "values", [{"k": 0}, {"margin": "product"}, {"retrieval": "sideways"}, {"target": []}]
)
def test_mining_refuses_misuse(values):
    """Unknown names, no neighbours, an empty side."""
    source, target = _vectors(3, 3)
    target = target[:0] if "target" in values else target
    values.pop("target", None)
    with pytest.raises(ValueError, match="no margin|need k"):
        mine(source, target, **values)


def _f1(scores, correct, gold, threshold):
    taken = [right for score, right in zip(scores, correct) if score >= threshold]
    hits = sum(taken)
    if not hits:
        return 0.0
    precision, recall = hits / len(taken), hits / gold
    return 2 * precision * recall / (precision + recall)


@settings(max_examples=200, deadline=None)
@given(
    candidates=st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12),
    unfound=st.integers(0, 3),
)
def test_best_threshold_is_best_of_all(candidates, unfound):
    """No threshold gives a larger F1, and the figures are those of its own threshold."""
    scores = np.array([score / 8 for score, _ in candidates])
    correct = np.array([right for _, right in candidates], bool)
    gold = max(1, int(correct.sum()) + unfound)
    best = best_extraction(scores, correct, gold)
    tries = [score / 8 + step for score in range(9) for step in (-0.01, 0, 0.01)]
    assert best.f1 == pytest.approx(max(_f1(scores, correct, gold, t) for t in tries))
    again = extract(scores, correct, gold, best.threshold)
    assert (again.precision, again.recall, again.f1) == pytest.approx(
        (best.precision, best.recall, best.f1)
    )


def test_threshold_lies_between_two_scores():
    """By hand: right, right, wrong, right of 3 gold: F1 0.8 after two, 6/7 after four."""
    scores, correct = np.array([1.4, 1.2, 1.1, 1.0]), np.array([True, True, False, True])
    best = best_extraction(scores, correct, 3)
    assert best.threshold == 1.0 and best.f1 == pytest.approx(6 / 7)
    best = best_extraction(scores[:3], correct[:3], 3)
    assert best.threshold == pytest.approx(1.15)
    assert (best.precision, best.recall, best.f1) == pytest.approx((1, 2 / 3, 0.8))


def test_equal_scores_are_taken_together():
    """A right one cannot be taken without the wrong one of the same score, in any order."""
    for correct in itertools.permutations([True, False, False]):
        best = best_extraction(np.array([1.1, 1.1, 1.1]), np.array(correct), 1)
        assert best.precision == pytest.approx(1 / 3)


def test_neighbouring_floats_are_kept_apart():
    """The mean of two scores without a number between them takes the upper one only."""
    lower = 1.0
    upper = np.nextafter(lower, 2)
    assert (lower + upper) / 2 == lower
    best = best_extraction(np.array([upper, lower]), np.array([True, False]), 1)
    assert best.f1 == 1.0
    assert extract(np.array([upper, lower]), np.array([True, False]), 1, best.threshold).f1 == 1.0


def test_nothing_right_is_zero():
    """No candidates, or wrong ones only; without gold there is no F1."""
    for scores in ([], [1.0, 2.0]):
        best = best_extraction(np.array(scores), np.zeros(len(scores), bool), 2)
        assert (best.threshold, best.precision, best.recall, best.f1) == (float("inf"), 0, 0, 0)
    for call in (lambda: best_extraction([], [], 0), lambda: extract([], [], 0, 1.0)):
        with pytest.raises(ValueError, match="gold"):
            call()


def test_repeated_sentences_are_mined_once_and_not_scored():
    """Their candidates have no single id; the others keep theirs."""
    source = unify([("s1", "a"), ("s2", "b"), ("s3", "a")])
    target = unify([("t1", "x"), ("t2", "y")])
    assert source.sentences == ["a", "b"] and source.ids == ["", "s2"]
    assert source.known == {"s1", "s2", "s3"}
    found = Candidates(np.array([[0, 0], [1, 1]]), np.array([1.5, 1.2]))
    scores, correct = judge(found, source, target, {("s1", "t1"), ("s2", "t2")})
    assert scores.tolist() == [1.2] and correct.tolist() == [True]


def _encode(texts):
    """A text is a list of numbers."""
    return np.array([[float(part) for part in text.split()] for text in texts], np.float32)


def _sentences(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(f"{value:.3f}" for value in row) for row in rng.normal(size=[n, 4])]


def _write(folder, split, source, target, gold, pair="de-en"):
    folder.mkdir(parents=True, exist_ok=True)
    first, second = pair.split("-")
    for language, sentences in ((first, source), (second, target)):
        lines = [f"{language}-{i}\t{sentence}" for i, sentence in enumerate(sentences)]
        (folder / f"{pair}.{split}.{language}").write_text("\n".join(lines) + "\n")
    lines = [f"{first}-{i}\t{second}-{j}" for i, j in gold]
    (folder / f"{pair}.{split}.gold").write_text("".join(line + "\n" for line in lines))


def _run(root, **options):
    report = SuiteReport()
    evaluate(_encode, DataFolder(root), Options(**options), report)
    return report


def test_splits_are_those_with_gold_files(tmp_path):
    """In the folder and in folders of pairs; the test is also cut where training was best."""
    sentences = _sentences()
    same = [(i, i) for i in range(6)]
    vectors = unit(_encode(sentences))
    found = mine(vectors, vectors)
    best = [tuple(pair) for pair in found.pairs[:2].tolist()]
    _write(tmp_path / "bucc/de-en", "training", sentences, sentences, best)
    _write(tmp_path / "bucc/de-en", "test", sentences, sentences, same)
    _write(tmp_path / "bucc", "sample", sentences, sentences[::-1], [(0, 5)], pair="fr-en")
    report = _run(tmp_path)
    assert not report.failures
    assert {s.task for s in report.scores} == {"de-en.training", "de-en.test", "fr-en.sample"}
    assert report.get("de-en.test", "f1_best") == 100.0
    assert report.get("de-en.training", "recall_best") == 100.0
    assert report.get("fr-en.sample", "recall_best") == 100.0
    tuned = report.get("de-en.training", "threshold_best")
    assert tuned == pytest.approx(found.scores[1:3].mean())
    assert report.get("de-en.test", "recall_training") == pytest.approx(100 * 2 / 6)
    assert report.get("de-en.test", "precision_training") == 100.0
    assert report.get("de-en.training", "f1_training") is None
    assert report.get("fr-en.sample", "f1_training") is None
    fixed = int((found.scores >= 1.06).sum())
    assert report.get("de-en.test", "recall_fixed") == pytest.approx(100 * fixed / 6)
    assert {s.count for s in report.scores if s.task == "de-en.training"} == {2}


def test_fixed_threshold_belongs_to_its_margin(tmp_path):
    """1.06 is a ratio's; another margin has none unless it is given."""
    sentences = _sentences()
    _write(tmp_path / "bucc", "training", sentences, sentences, [(0, 0)])
    assert Options().fixed == 1.06
    distance = _run(tmp_path, margin="distance")
    assert distance.get("de-en.training", "f1_fixed") is None
    assert distance.get("de-en.training", "threshold_best") < 1
    assert _run(tmp_path, margin="absolute", threshold=0.99).get(
        "de-en.training", "recall_fixed"
    ) == pytest.approx(100.0)
    assert _run(tmp_path, threshold=100.0).get("de-en.training", "f1_fixed") == 0.0


def test_bad_lines_and_unknown_ids_are_noted(tmp_path):
    """What is skipped is counted; unknown gold pairs count as not found."""
    sentences = _sentences()
    _write(tmp_path / "bucc", "sample", sentences, sentences, [(0, 0), (1, 1), (77, 1)])
    with (tmp_path / "bucc/de-en.sample.de").open("a") as file:
        file.write(f"no tab\n\nde-91\t\nde-90\t{sentences[5]}\n")
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
    sentences = _sentences()
    _write(tmp_path / "bucc", "sample", sentences, sentences, [(0, 0)])
    _write(tmp_path / "bucc", "training", sentences, sentences, [(0, 0)])
    break_it(tmp_path / "bucc")
    report = _run(tmp_path)
    assert len(report.failures) == 1 and message in report.failures[0]
    assert {score.task for score in report.scores} == {"de-en.training"}


def test_missing_data_says_where_it_is(tmp_path):
    """Without the folder, and without gold in it: where to get BUCC and its layout."""
    for _ in range(2):
        with pytest.raises(UserError, match=r"bucc2018.*<src>-<trg>\.<split>\.gold"):
            _run(tmp_path)
        (tmp_path / "bucc").mkdir(exist_ok=True)


@pytest.mark.parametrize("values", [{"margin": "x"}, {"retrieval": "x"}, {"k": 0}])
def test_options_that_cannot_be_are_refused(values):
    """With the suite's name, so that the command line can say it."""
    with pytest.raises(UserError, match="bitext_mining: "):
        suites.options("bitext_mining", values)


def test_real_sentences(data_dir, tmp_path):
    """Every second German line of multi-way news against English lines, by shared words."""
    texts = {
        language: (data_dir / "ntrex" / name).read_text("utf-8").splitlines()[:200]
        for language, name in (
            ("de", "newstest2019-ref.deu.txt"),
            ("en", "newstest2019-src.eng.txt"),
        )
    }
    _write(
        tmp_path / "bucc",
        "sample",
        texts["de"][::2],
        texts["en"],
        [(i, 2 * i) for i in range(100)],
    )
    report = SuiteReport()
    evaluate(_words, DataFolder(tmp_path), Options(), report)
    assert not report.failures
    # Numbers and names stand in both languages.
    assert report.get("de-en.sample", "f1_best") > 25


def _words(texts, dim=2048):
    import hashlib

    vectors = np.zeros([len(texts), dim], np.float32)
    for row, text in zip(vectors, texts):
        for word in text.lower().split():
            digest = hashlib.blake2b(word.strip(".,").encode(), digest_size=4).digest()
            row[int.from_bytes(digest, "little") % dim] += 1
    return vectors
