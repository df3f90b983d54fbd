"""Exact nearest neighbours: what sorting all says, whatever the blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.evaluation.metrics.nearest import (
    finds_own_row,
    nearest,
    next_sentence_recall,
    unit,
)
from tests.evaluation import toy

# One, a few and all queries in a block of 40 candidates.
BLOCKS = [1, 4 * 40 * 3, 1 << 28]


def _random(*counts):
    rng = np.random.default_rng(0)
    return [rng.normal(size=[count, 5]).astype(np.float32) for count in counts]


def _by_sorting(queries, candidates, k, penalties=0.0, exclude=None):
    """Sorts all products in float64."""
    scores = queries.astype(float) @ candidates.T.astype(float) - penalties
    if exclude is not None:
        known = np.flatnonzero(exclude >= 0)
        scores[known, exclude[known]] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("k", [1, 2, 5, 6, 39, 40])
def test_neighbours_are_those_of_a_sort(k, block_bytes):
    """For every k, also where few, many or all candidates are wanted, and every block size."""
    queries, candidates = _random(11, 40)
    indices, values = nearest(queries, candidates, k, block_bytes=block_bytes)
    expected_indices, expected_values = _by_sorting(queries, candidates, k)
    np.testing.assert_array_equal(indices, expected_indices)
    np.testing.assert_allclose(values, expected_values, rtol=1e-4, atol=1e-5)
    assert (indices.dtype, values.dtype) == (np.int64, np.float32)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 20),
    more=st.integers(1, 40),
    block_bytes=st.sampled_from([1, 300, 1 << 20]),
    excluding=st.booleans(),
)
def test_of_equal_candidates_the_lower_index_comes_first(seed, k, more, block_bytes, excluding):
    """Ties at the border of k and within it, with penalties and exclusions, in any block size."""
    rng = np.random.default_rng(seed)
    # Inner products of small whole numbers are exact, and many of them equal.
    queries, candidates = (rng.integers(-1, 2, [n, 3]).astype(np.float32) for n in (7, k + more))
    penalties = rng.integers(0, 2, k + more).astype(np.float32)
    exclude = rng.integers(-1, k + more, 7) if excluding else None
    neighbours = nearest(queries, candidates, k, penalties, exclude, block_bytes)
    expected = _by_sorting(queries, candidates, k, penalties, exclude)
    np.testing.assert_array_equal(neighbours[0], expected[0])
    np.testing.assert_array_equal(neighbours[1], expected[1])


@pytest.mark.parametrize(("k", "exclude"), [(0, None), (5, None), (-1, None), (4, np.arange(4))])
def test_impossible_k_is_an_error(k, exclude):
    """k is 1 to the number of candidates, one less where one is excluded."""
    vectors = np.eye(4, dtype=np.float32)
    with pytest.raises(ValueError, match="k must be 1 to"):
        nearest(vectors, vectors, k, exclude=exclude)
    # No queries are none.
    assert nearest(np.zeros([0, 4]), vectors, 2)[0].shape == (0, 2)


def test_unit_rows_have_length_one_and_zeros_stay():
    """3-4-5 by hand; a row of zeros is near to nothing; the argument is left as it is."""
    vectors = np.array([[3, 4], [0, 0], [-2, 0]], np.float32)
    np.testing.assert_allclose(unit(vectors), [[0.6, 0.8], [0, 0], [-1, 0]], rtol=1e-6)
    assert vectors[0].tolist() == [3, 4]
    assert unit(vectors, in_place=True) is vectors
    np.testing.assert_allclose(vectors[0], [0.6, 0.8], rtol=1e-6)


def test_equal_candidates_and_zeros_go_to_the_lowest_index():
    """Copies of a sentence are found by the first of them, zeros find the first row."""
    same = np.array([[1, 0], [1, 0], [0, 1]])
    assert finds_own_row(same, same).tolist() == [True, False, True]
    zeros = np.array([[0, 0], [0, 0], [0, 1]])
    assert finds_own_row(zeros, same).tolist() == [True, False, True]


def test_next_sentence_recall():
    """As a plain loop finds it; of equal candidates by chance, 1 of n: not all and not none."""
    table = dict(zip("abcdefghijABCDEFGHIJ", np.random.default_rng(0).normal(size=[20, 6])))
    first, second = list("abcdefghij"), list("ABCDEFGHIJ")

    def cosine(a, b):
        return table[a] @ table[b] / np.linalg.norm(table[a]) / np.linalg.norm(table[b])

    hits = [max(second, key=lambda b, a=a: cosine(a, b)) == a.upper() for a in first]
    recall = next_sentence_recall(toy.lookup(table), first, second)
    assert 0 < recall < 1 and recall == pytest.approx(np.mean(hits))
    for value in (0.0, 1.0):
        same = dict.fromkeys(table, [value] * 4)
        assert next_sentence_recall(toy.lookup(same), first, second) == pytest.approx(0.1)
