"""Hand-worked cases for the NumPy reference of contrastive learning and inference."""

import math

import numpy as np
import pytest

from tests.oracles import contrastive_numpy as oracle

# Cosines: 0.6 of each pair, 0 and 0.8 across; the lengths must not matter.
FIRST = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
SECOND = [[0.6, 0.8, 0.0], [0.0, 1.8, 2.4]]
T = 0.5


def _exp(cosine):
    return math.exp(cosine / T)


def test_cosine_by_hand():
    """Lengths do not matter, and a vector without direction is like no other."""
    assert oracle.cosine([3.0, 4.0], [0.0, 2.0]) == pytest.approx(0.8)
    assert oracle.cosine([0.0, 0.0], [1.0, 2.0]) == 0.0


def test_mean_positives_by_hand():
    """The p-th positive of anchor i stands p times AN rows behind the first one's."""
    positives = [[1.0, 0.0], [0.0, 2.0], [3.0, 2.0], [4.0, 4.0]]
    np.testing.assert_allclose(oracle.mean_positives(positives, 2), [[2.0, 1.0], [2.0, 3.0]])


def test_nt_xent_by_hand():
    """All four terms of two anchors with their positives."""
    own = _exp(0.6)
    # Cosines of the others: a0-a1 0, b0-b1 0.8 · 0.6, a0-b1 0, a1-b0 0.8.
    terms = [
        own / (own + _exp(0.0) + _exp(0.0)),
        own / (own + _exp(0.0) + _exp(0.8)),
        own / (own + _exp(0.8) + _exp(0.48)),
        own / (own + _exp(0.0) + _exp(0.48)),
    ]
    expected = -math.fsum(math.log(term) for term in terms)
    assert oracle.nt_xent_sum(FIRST, SECOND, T) == pytest.approx(expected)
    assert oracle.nt_xent_mean(FIRST, SECOND, T) == pytest.approx(expected / 4)


def test_info_nce_by_hand():
    """Equation 1 leaves the positive out; with it, the terms are those of NT-Xent."""
    terms = oracle.info_nce(FIRST, SECOND, T)
    assert terms[0] == pytest.approx(-math.log(_exp(0.6) / (2 * _exp(0.0))))
    assert terms[3] == pytest.approx(-math.log(_exp(0.6) / (_exp(0.0) + _exp(0.48))))
    with_positive = oracle.info_nce(FIRST, SECOND, T, positive_in_denominator=True)
    assert math.fsum(with_positive) == pytest.approx(oracle.nt_xent_sum(FIRST, SECOND, T))


def test_simcse_by_hand():
    """The candidates of one view are those of the other view alone."""
    own = _exp(0.6)
    expected = [-math.log(own / (own + _exp(0.0))), -math.log(own / (own + _exp(0.8)))]
    assert oracle.simcse(FIRST, SECOND, T) == pytest.approx(expected)


def test_quick_thought_run_by_hand():
    """Three sentences of one document and one of another, which has no neighbour."""
    first = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [5.0, 5.0]]
    second = [[9.0, 9.0], [2.0, 3.0], [4.0, 0.5], [1.0, 0.0]]
    terms = oracle.quick_thought_run(first, second, [(0, 4), (0, 5), (0, 6), (1, 7)])
    assert terms[0] == pytest.approx(math.log(1 + math.exp(2) + math.exp(4) + math.exp(1)) - 2)
    assert terms[1] == pytest.approx(
        math.log(math.exp(9) + 1 + math.exp(0.5) + math.exp(0)) - (9 + 0.5) / 2
    )
    assert terms[3] is None


def test_finds_own_by_hand():
    """The nearest candidate by angle, not by length."""
    assert oracle.finds_own([1.0, 0.0], [[0.1, 0.0], [9.0, 9.0]], own=0)
    assert not oracle.finds_own([1.0, 0.0], [[0.1, 0.0], [9.0, 9.0]], own=1)


def test_inference_by_hand():
    """Features, classifier and cross-entropy of two vectors of two numbers."""
    features = oracle.nli_features([1.0, -2.0], [3.0, 5.0])
    np.testing.assert_array_equal(features, [1.0, -2.0, 3.0, 5.0, 2.0, 7.0, 3.0, -10.0])
    kernel = np.zeros([8, 3])
    kernel[0, 1], kernel[7, 2] = 2.0, 0.1
    logits = oracle.inference_logits(features, kernel, [0.5, 0.0, 0.0])
    np.testing.assert_allclose(logits, [0.5, 2.0, -1.0])
    expected = math.log(math.exp(0.5) + math.exp(2.0) + math.exp(-1.0)) - 2.0
    assert oracle.cross_entropy(logits, 1) == pytest.approx(expected)
