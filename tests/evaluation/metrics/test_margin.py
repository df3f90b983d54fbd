"""Margins and retrieval by loops, and the best threshold by trying all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.evaluation.metrics.margin import (
    MARGINS,
    RETRIEVALS,
    best_extraction,
    extract,
    mine,
)
from official_cmlm.evaluation.metrics.nearest import unit


def _mine_by_loops(source, target, k, margin, retrieval):
    """Computes Artetxe and Schwenk's formulas, one sentence after the other."""
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
    """Every margin, retrieval and size of neighbourhood, also one larger than the corpus.

    Progress counts every sentence of both sides.
    """
    # Positive vectors, so that no mean cosine is near 0.
    rng = np.random.default_rng(0)
    source, target = (unit(np.abs(rng.normal(size=[count, 4]))) for count in (14, 17))
    done = []
    found = mine(source, target, k, margin, retrieval, done.append)
    assert sum(done) == 14 + 17
    expected = _mine_by_loops(source, target, k, margin, retrieval)
    pairs = [tuple(pair) for pair in found[0].tolist()]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == set(expected)
    np.testing.assert_allclose(found[1], [expected[pair] for pair in pairs], rtol=1e-4)


def test_vectors_of_zeros_are_mined_without_nan():
    """They score 0."""
    found = mine(np.zeros([2, 3], np.float32), np.zeros([3, 3], np.float32))
    assert np.isfinite(found[1]).all() and not found[1].any()


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
    """No threshold gives a larger F1, and the figures are those of its own threshold.

    Equal scores are taken together; where nothing is right, no score reaches the threshold.
    """
    scores = np.array([score / 8 for score, _ in candidates])
    correct = np.array([right for _, right in candidates], bool)
    gold = max(1, int(correct.sum()) + unfound)
    best = best_extraction(scores, correct, gold)
    tries = [score / 8 + step for score in range(9) for step in (-0.01, 0, 0.01)]
    assert best.f1 == pytest.approx(max(_f1(scores, correct, gold, t) for t in tries))
    assert (best.threshold == float("inf")) == (not correct.any())
    again = extract(scores, correct, gold, best.threshold)
    assert (again.precision, again.recall, again.f1) == pytest.approx(
        (best.precision, best.recall, best.f1)
    )


def test_threshold_lies_between_two_scores():
    """Candidates right, right, wrong, right of 3 gold give F1 0.8 after two, 6/7 after four."""
    scores, correct = np.array([1.4, 1.2, 1.1, 1.0]), np.array([True, True, False, True])
    best = best_extraction(scores, correct, 3)
    assert best.threshold == 1.0 and best.f1 == pytest.approx(6 / 7)
    best = best_extraction(scores[:3], correct[:3], 3)
    assert best.threshold == pytest.approx(1.15)
    assert (best.precision, best.recall, best.f1) == pytest.approx((1, 2 / 3, 0.8))


def test_neighbouring_floats_are_kept_apart():
    """The mean of two scores without a number between them takes the upper one only."""
    lower = 1.0
    upper = np.nextafter(lower, 2)
    assert (lower + upper) / 2 == lower
    best = best_extraction(np.array([upper, lower]), np.array([True, False]), 1)
    assert best.f1 == 1.0
    assert extract(np.array([upper, lower]), np.array([True, False]), 1, best.threshold).f1 == 1.0
