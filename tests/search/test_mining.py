"""Paraphrases, duplicates and clusters: what plain loops find, whatever the blocks."""

import tracemalloc

import numpy as np
import pytest

from official_cmlm.search import cluster, duplicates, groups, paraphrases
from tests.search.toy_encoder import unit_vectors

# One row, a few rows, all rows in a block.
BLOCKS = [1, 4 * 60 * 7, 1 << 28]
VECTORS = unit_vectors(60, 6)
# With equal rows, and a row of zeros, as of a text without tokens.
VECTORS[[9, 31]] = VECTORS[4]
VECTORS[17] = 0


def _pairs(vectors, threshold):
    found = [
        (float(vectors[i] @ vectors[j]), i, j)
        for i in range(len(vectors))
        for j in range(i + 1, len(vectors))
        if vectors[i] @ vectors[j] >= threshold
    ]
    return sorted(found, key=lambda pair: (-round(pair[0], 5), pair[1], pair[2]))


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("threshold", [-1, 0.2, 0.801, 0.95])
def test_paraphrases_are_all_pairs_above_the_threshold(block_bytes, threshold):
    pairs, scores = paraphrases(VECTORS, threshold, block_bytes=block_bytes)
    expected = _pairs(VECTORS, threshold)
    assert {*map(tuple, pairs.tolist())} == {(i, j) for _, i, j in expected}
    np.testing.assert_allclose(scores, [score for score, _, _ in expected], atol=1e-5)
    assert (np.diff(scores) <= 0).all()


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("most", [1, 5, 50])
def test_the_best_pairs_are_kept(block_bytes, most):
    pairs, scores = paraphrases(VECTORS, 0.1, most, block_bytes)
    _, all_scores = paraphrases(VECTORS, 0.1)
    assert len(pairs) == most
    np.testing.assert_allclose(scores, all_scores[:most], atol=1e-6)
    if most > 3:
        assert {(4, 9), (4, 31), (9, 31)} <= {*map(tuple, pairs.tolist())}


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("threshold", [0.3, 0.801, 0.99])
def test_duplicates_have_a_kept_row_that_is_near(block_bytes, threshold):
    found = duplicates(VECTORS, threshold, block_bytes)
    kept = []
    for i, vector in enumerate(VECTORS):
        best = max((float(vector @ VECTORS[j]) for j in kept), default=-2)
        if best >= threshold:
            assert found[i] != i and VECTORS[found[i]] @ vector == pytest.approx(best, abs=1e-6)
            assert found[i] in kept
        else:
            kept.append(i)
            assert found[i] == i
    assert found[9] == found[31]


def test_clusters_are_those_that_the_vectors_were_drawn_from():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 40)
    vectors = np.eye(5, 16)[truth] + 0.05 * rng.normal(size=[200, 16])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found, centres = cluster(vectors, 5)
    assert len({*zip(truth.tolist(), found.tolist())}) == 5
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, atol=1e-5)
    assert (np.argmax(vectors @ centres.T, axis=1) == found).all()
    assert (cluster(vectors, 5)[0] == found).all()


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("threshold", [0.6, 0.801, 0.95])
def test_groups_of_two_are_the_connected_components(block_bytes, threshold):
    found = groups(VECTORS, threshold, block_bytes=block_bytes)
    component = list(range(len(VECTORS)))
    for _, i, j in _pairs(VECTORS, threshold):
        low, high = sorted([component[i], component[j]])
        component = [low if each == high else each for each in component]
    sizes = {each: component.count(each) for each in component}
    expected = {
        frozenset(i for i, each in enumerate(component) if each == name)
        for name, size in sizes.items()
        if size > 1
    }
    named = range(found.max() + 1)
    assert {frozenset(np.flatnonzero(found == name).tolist()) for name in named} == expected
    sizes = [int((found == name).sum()) for name in named]
    assert sizes == sorted(sizes, reverse=True)
    assert found[17] == -1


def test_a_group_needs_so_many_neighbours():
    """Three equal rows are one group of three, and none of four."""
    vectors = np.eye(6)[[0, 0, 0, 1, 2, 2]]
    assert groups(vectors, 0.9).tolist() == [0, 0, 0, -1, 1, 1]
    assert groups(vectors, 0.9, least=3).tolist() == [0, 0, 0, -1, -1, -1]
    assert groups(vectors, 0.9, least=4).tolist() == [-1] * 6
    assert groups(vectors, 0.9, least=1).tolist() == [0, 0, 0, 2, 1, 1]


def test_nothing_has_no_neighbours():
    none = np.zeros([0, 4])
    assert [len(each) for each in paraphrases(none)] == [0, 0]
    assert len(duplicates(none)) == len(groups(none)) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paraphrases(VECTORS * 2), "normalize_embeddings=True"),
        (lambda: duplicates(VECTORS[0]), r"give vectors \[n, dim\]"),
        (lambda: paraphrases(VECTORS, 1.1), "-1 to 1"),
        (lambda: duplicates(VECTORS, float("nan")), "-1 to 1"),
        (lambda: groups(VECTORS, 5.0), "-1 to 1"),
        (lambda: paraphrases(VECTORS, most=0), "at least 1"),
        (lambda: cluster(VECTORS, 61), "1 to 60"),
        (lambda: groups(VECTORS, least=0), "at least 1"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _peak(call, vectors, *arguments, **options):
    """Returns the result of a call, and the most bytes that it holds at once."""
    call(vectors[:10])
    tracemalloc.start()
    found = call(vectors, *arguments, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, peak


def test_memory():
    """All vectors are equal, so every pair is near; those that are not wanted take none."""
    vectors, block = np.tile(np.eye(1, 8, dtype=np.float32), (1500, 1)), 1 << 22
    (pairs, _), peak = _peak(paraphrases, vectors, 0.7, most=2000, block_bytes=block)
    assert peak < 4 * block
    # Ties are ordered by row.
    assert pairs.tolist() == [[0, i] for i in range(1, 1500)] + [[1, i] for i in range(2, 503)]
    found, peak = _peak(groups, vectors[:1000], 0.7, block_bytes=1 << 20)
    assert (found == 0).all() and peak < 130 * (1000 * 999 // 2)
