"""Measures of rankings: a plain second computation, values by hand, search in parts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.metrics.ranking import (
    average_precision,
    ideal_gains,
    ndcg,
    rank_gains,
    recall,
    reciprocal_rank,
    search,
)


@st.composite
def _rankings(draw):
    """Draws one query: documents in their order, judged gains, a document to leave out."""
    documents = draw(st.permutations(range(12)))[: draw(st.integers(1, 12))]
    # Some judged documents were not retrieved.
    judged = draw(st.dictionaries(st.integers(0, 15), st.integers(-1, 4), max_size=10))
    return list(documents), judged, draw(st.integers(-1, 11))


def _by_loops(documents, judged, ignored, k):
    """Computes all measures of one query from their definitions."""
    ranked = [judged.get(d, 0) for d in documents if d != ignored][:k]
    relevant = sum(gain > 0 for gain in judged.values())
    best = sorted((gain for gain in judged.values() if gain > 0), reverse=True)[:k]

    def sum_discounted(gains):
        return sum(max(gain, 0) / math.log2(rank + 2) for rank, gain in enumerate(gains))

    hits = [rank for rank, gain in enumerate(ranked, 1) if gain > 0]
    precisions = [sum(other <= rank for other in hits) / rank for rank in hits]
    return (
        sum_discounted(ranked) / sum_discounted(best) if best else 0.0,
        1 / hits[0] if hits else 0.0,
        len(hits) / relevant if relevant else 0.0,
        sum(precisions) / relevant if relevant else 0.0,
    )


@settings(deadline=None)
@given(_rankings(), _rankings(), st.integers(1, 12))
def test_measures_are_those_of_plain_loops(first, second, k):
    """Two queries at once agree with the oracle, whatever is judged, retrieved and left out.

    Where nothing is relevant, all measures are 0.
    """
    depth = min(len(first[0]), len(second[0]))
    ranking = np.array([first[0][:depth], second[0][:depth]])
    judged = [first[1], second[1]]
    gains = rank_gains(ranking, judged, 12, [first[2], second[2]])
    relevant = np.array([sum(gain > 0 for gain in each.values()) for each in judged])
    ideal = ideal_gains([each.values() for each in judged], 12)
    measures = (
        ndcg(gains, ideal, k),
        reciprocal_rank(gains, k),
        recall(gains, relevant, k),
        average_precision(gains, relevant, k),
    )
    for i, (documents, each, ignored) in enumerate((first, second)):
        expected = _by_loops(documents[:depth], each, ignored, k)
        assert [values[i] for values in measures] == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [[40], [1, 39], [13, 0, 13, 14], [1] * 40])
@pytest.mark.parametrize("k", [1, 7, 40, 99])
def test_search_in_parts_is_search_at_once(sizes, k):
    """Whole numbers, so that many products are equal: ties stay ordered by place."""
    rng = np.random.default_rng(0)
    queries = rng.integers(-1, 2, [9, 3]).astype(np.float32)
    documents = rng.integers(-1, 2, [40, 3]).astype(np.float32)
    parts = np.split(documents, np.cumsum(sizes)[:-1])
    expected, _ = nearest(queries, documents, min(k, 40))
    ranking = search(queries, iter(parts), k)
    assert ranking.dtype == np.int64
    np.testing.assert_array_equal(ranking, expected)


@pytest.mark.parametrize("sizes", [[2000], [700, 1000, 300]])
@pytest.mark.parametrize("k", [5, 37, 60])
def test_equal_documents_are_ordered_by_place(sizes, k):
    """Whatever a matrix product makes of their last bits, also where the ranking ends in them."""
    rng = np.random.default_rng(0)
    documents = unit(rng.normal(size=[2000, 384]))
    equal = np.sort(rng.choice(2000, 37, replace=False))
    documents[equal] = documents[equal[0]]
    queries = unit(documents[equal[0]] + 0.02 * rng.normal(size=[50, 384]))
    parts = np.split(documents, np.cumsum(sizes)[:-1])
    ranking = search(queries, parts, k)
    assert ranking.shape == (50, k)
    np.testing.assert_array_equal(ranking[:, :37], np.tile(equal[:k], [50, 1]))
    assert all(len(set(row)) == k for row in ranking.tolist())
    every = search(queries[:2], parts, 3000)
    np.testing.assert_array_equal(np.sort(every, axis=1), np.tile(np.arange(2000), [2, 1]))
