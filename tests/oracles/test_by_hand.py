"""Hand-worked cases for the NumPy references, of formulas that can be read in two ways."""

import math

import numpy as np
import pytest

from tests.oracles import cmlm_numpy as cmlm
from tests.oracles import contrastive_numpy as contrastive

# Cosines: 0.6 of each pair, 0 and 0.8 across; the lengths must not matter.
FIRST = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
SECOND = [[0.6, 0.8, 0.0], [0.0, 1.8, 2.4]]
T = 0.5


def test_project():
    # FC(1, 2, ReLU), FC(2, 2, ReLU), FC(2, 1, None).
    network = [
        ([[1.0, -1.0]], [0.5, 0.0]),
        ([[2.0, -1.0], [0.0, 0.0]], [0.0, 9.0]),
        ([[-1.0], [1.0]], [-10.0]),
    ]
    # 3 -> (3.5, 0) -> (7, 5.5) -> -1.5 - 10
    np.testing.assert_allclose(cmlm.project([3.0], [network]), [[3.0], [-11.5]])
    np.testing.assert_array_equal(cmlm.project([3.0], []), [[3.0]])


def test_additive_margin_softmax_by_hand():
    # phi = [[log 4, 0], [log 2, log 6]]; the margin log 2 turns e^phi into [[2, 1], [2, 3]].
    first = [[1.0, 0.0], [0.0, 1.0]]
    second = [[math.log(4.0), math.log(2.0)], [0.0, math.log(6.0)]]
    source = -(math.log(2.0 / 3.0) + math.log(3.0 / 5.0)) / 2.0
    target = -(math.log(2.0 / 4.0) + math.log(3.0 / 4.0)) / 2.0
    margin = math.log(2.0)
    one_way = cmlm.additive_margin_softmax(first, second, margin, 1.0, False, False)
    both_ways = cmlm.additive_margin_softmax(first, second, margin, 1.0, False, True)
    assert one_way == pytest.approx(source)
    assert both_ways == pytest.approx(source + target)


def test_additive_margin_softmax_margin_comes_before_the_scale():
    # Unit vectors along the axes: logits scale * (1 - margin) and 0.
    first = [[2.0, 0.0], [0.0, 5.0]]
    second = [[7.0, 0.0], [0.0, 0.1]]
    loss = cmlm.additive_margin_softmax(first, second, 0.25, 4.0, True, False)
    assert loss == pytest.approx(math.log(1.0 + math.exp(-3.0)))
    both_ways = cmlm.additive_margin_softmax(first, second, 0.25, 4.0, True, True)
    assert both_ways == pytest.approx(2.0 * math.log(1.0 + math.exp(-3.0)))
    single = cmlm.additive_margin_softmax([[1.0]], [[1.0]], 0.3, 10.0, False, True)
    assert single == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("num_candidates", "length", "rate", "maximum", "expected"),
    [
        (0, 2, 0.15, 20, 0),
        (1, 3, 0.15, 20, 1),
        (3, 5, 0.5, 20, 2),
        (5, 7, 0.5, 20, 4),
        (7, 9, 0.5, 20, 4),
        (254, 256, 0.3125, 80, 80),
        (254, 256, 0.3125, 100, 80),
        (254, 256, 100 / 256, 100, 100),
        (254, 256, 1.0, 300, 254),
        (98, 100, 0.5, 7, 7),
    ],
)
def test_bert_mask_counts(num_candidates, length, rate, maximum, expected):
    assert cmlm.bert_mask_counts(num_candidates, length, rate, maximum) == expected


@pytest.mark.parametrize(
    ("lengths", "segments"),
    [
        ([], []),
        ([2, 3, 1, 4, 5], [[0, 1], [2, 3], [4]]),
        ([1, 9, 1, 1], [[0], [1], [2, 3]]),
        ([9, 9], [[0], [1]]),
        # Consecutive sentences only: the last one would fit into the first segment.
        ([3, 4, 2], [[0], [1], [2]]),
    ],
)
def test_greedy_pack(lengths, segments):
    assert cmlm.greedy_pack(lengths, 5) == segments


def _exp(cosine):
    return math.exp(cosine / T)


def test_mean_positives_by_hand():
    """The p-th positive of anchor i stands p times AN rows after the first one's."""
    positives = [[1.0, 0.0], [0.0, 2.0], [3.0, 2.0], [4.0, 4.0]]
    np.testing.assert_allclose(contrastive.mean_positives(positives, 2), [[2.0, 1.0], [2.0, 3.0]])


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
    assert contrastive.nt_xent_sum(FIRST, SECOND, T) == pytest.approx(expected)
    assert contrastive.nt_xent_mean(FIRST, SECOND, T) == pytest.approx(expected / 4)


def test_info_nce_by_hand():
    """Equation 1 leaves the positive out; with it, the terms are those of NT-Xent."""
    terms = contrastive.info_nce(FIRST, SECOND, T)
    assert terms[0] == pytest.approx(-math.log(_exp(0.6) / (2 * _exp(0.0))))
    assert terms[3] == pytest.approx(-math.log(_exp(0.6) / (_exp(0.0) + _exp(0.48))))
    with_positive = contrastive.info_nce(FIRST, SECOND, T, positive_in_denominator=True)
    assert math.fsum(with_positive) == pytest.approx(contrastive.nt_xent_sum(FIRST, SECOND, T))


def test_simcse_by_hand():
    """The candidates of one view are those of the other view alone."""
    own = _exp(0.6)
    expected = [-math.log(own / (own + _exp(0.0))), -math.log(own / (own + _exp(0.8)))]
    assert contrastive.simcse(FIRST, SECOND, T) == pytest.approx(expected)


def test_quick_thought_run_by_hand():
    """Three sentences of one document and one of another, which has no neighbour."""
    first = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [5.0, 5.0]]
    second = [[9.0, 9.0], [2.0, 3.0], [4.0, 0.5], [1.0, 0.0]]
    terms = contrastive.quick_thought_run(first, second, [(0, 4), (0, 5), (0, 6), (1, 7)])
    assert terms[0] == pytest.approx(math.log(1 + math.exp(2) + math.exp(4) + math.exp(1)) - 2)
    assert terms[1] == pytest.approx(
        math.log(math.exp(9) + 1 + math.exp(0.5) + math.exp(0)) - (9 + 0.5) / 2
    )
    assert terms[3] is None
