"""Cosines and correlations: orders, ties and conventions worked by hand."""

import numpy as np
import pytest

from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.metrics.similarity import (
    cosines,
    similarity_spearman,
    subset_correlations,
)
from tests.evaluation import toy

_encode = toy.lookup(toy.VECTORS)


def _pairs(*rows):
    first, second, gold = zip(*rows)
    return ScoredPairs(list(first), list(second), np.array(gold, float))


def test_perfect_and_reversed_order():
    """Cosines 1, 0.71, 0 and -1; lengths do not matter."""
    rows = [("x", "x"), ("x", "xy"), ("x", "y"), ("x", "-x")]
    for gold, expected in (([5, 4, 2, 0], 100.0), ([0, 1, 2, 3], -100.0)):
        pairs = _pairs(*[(*row, score) for row, score in zip(rows, gold)])
        assert similarity_spearman(_encode, pairs) == pytest.approx(expected)


def test_ties_share_their_rank():
    """Ranks 1.5 1.5 3 against 1 2 3: Pearson of the ranks is sqrt(3)/2."""
    pairs = _pairs(("x", "y", 1), ("y", "x", 2), ("x", "x", 3))
    assert similarity_spearman(_encode, pairs) == pytest.approx(100 * 3**0.5 / 2)


def test_cosines_that_differ_by_rounding_alone_are_ties():
    """Equal vectors, and those that another batch has rounded; no pair of them ranks first."""
    draw = np.random.default_rng(0)
    vectors = {str(i): row for i, row in enumerate(draw.normal(size=[9, 64]).astype(np.float32))}
    vectors |= {f"{name}'": np.nextafter(row, 9) for name, row in vectors.items()}
    names = list(vectors)[:9]
    pairs = _pairs(*((n, n, 1) for n in names), *((n, f"{n}'", 1) for n in names), ("0", "1", 0))
    values = cosines(lambda texts: np.stack([vectors[text] for text in texts]), pairs)
    assert set(values[:-1]) == {1.0} and -1 < values[-1] < 1


def test_a_zero_vector_has_cosine_zero():
    pairs = _pairs(("x", "-x", 0), ("x", "0", 1), ("x", "x", 2))
    assert similarity_spearman(_encode, pairs) == pytest.approx(100.0)


def test_conventions_by_hand():
    """Subset a is ranked rightly (4 pairs), b wrongly (2): mean 0, weighted 100/3, all by ranks."""
    a = _pairs(("x", "x", 9), ("x", "xy", 8), ("x", "y", 7), ("x", "-x", 1))
    b = _pairs(("x", "y", 3), ("x", "-x", 4))
    correlations = subset_correlations(_encode, {"a": a, "b": b})
    assert correlations["spearman_mean"] == pytest.approx(0.0)
    assert correlations["spearman_wmean"] == pytest.approx(100 * (4 - 2) / 6)
    # Cosines 1, .71, 0, -1, 0, -1 have ranks 6 5 3.5 1.5 3.5 1.5; gold 6 5 4 1 2 3.
    ranks, gold = np.array([6, 5, 3.5, 1.5, 3.5, 1.5]), np.array([6, 5, 4, 1, 2, 3])
    expected = np.cov(ranks, gold)[0, 1] / (ranks.std(ddof=1) * gold.std(ddof=1))
    assert correlations["spearman_all"] == pytest.approx(100 * expected)
    linear = _pairs(("x", "x", 2), ("x", "y", 1), ("x", "-x", 0))
    assert subset_correlations(_encode, {"c": linear})["pearson_all"] == pytest.approx(100.0)


def test_constant_side_is_no_nan():
    """An encoder that gives all the same has no correlation, not NaN."""
    assert similarity_spearman(_encode, _pairs(("x", "x", 1), ("y", "y", 2))) == 0.0
