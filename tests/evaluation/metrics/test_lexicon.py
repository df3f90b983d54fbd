"""Lexicon induction on arrays: the map, CSLS by loops, precision."""

import numpy as np
import pytest

from official_cmlm.evaluation.metrics.lexicon import centred, precision_at, procrustes, translations
from official_cmlm.evaluation.metrics.nearest import unit


def rotation_of(dim, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=[dim, dim]))[0]


def random_vectors(n, dim=5, seed=0):
    return unit(np.random.default_rng(seed).normal(size=[n, dim]))


def test_map_is_orthogonal_and_no_other_is_nearer():
    """Among many orthogonal maps none leaves a smaller distance; roles matter."""
    source, target = random_vectors(30), random_vectors(30, seed=1)
    weights = procrustes(source, target)
    np.testing.assert_allclose(weights @ weights.T, np.eye(5), atol=1e-9)
    own = np.linalg.norm(source @ weights - target)
    assert own < np.linalg.norm(source @ weights.T - target)
    for seed in range(200):
        assert own <= np.linalg.norm(source @ rotation_of(5, seed) - target) + 1e-9


def test_centred_vectors_lose_their_mean_and_have_length_one():
    """Scaled, moved, scaled again: by hand for two vectors."""
    vectors = np.array([[2.0, 0.0], [0.0, 3.0]])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(centred(vectors), [[half, -half], [-half, half]], rtol=1e-6)


def csls_by_loops(queries, candidates, vocabulary, most, k):
    def mean(vector, others):
        cosines = sorted((float(vector @ other) for other in others), reverse=True)[:k]
        return sum(cosines) / len(cosines)

    rows = []
    for query in queries:
        own = mean(query, candidates)
        scores = [
            2 * float(query @ candidate) - own - mean(candidate, vocabulary)
            for candidate in candidates
        ]
        rows.append(sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:most])
    return np.array(rows)


@pytest.mark.parametrize("k", [1, 3, 100])
def test_csls_is_the_formula(k):
    """2 cos − r(x) − r(y), with r(y) among the whole source vocabulary, not the queries alone."""
    vocabulary, candidates = random_vectors(40), random_vectors(25, seed=1)
    found = translations(vocabulary[:8], candidates, vocabulary, 5, "csls", k)
    np.testing.assert_array_equal(
        found, csls_by_loops(vocabulary[:8], candidates, vocabulary, 5, k)
    )
    plain = translations(vocabulary[:8], candidates, vocabulary, 5, "cosine", k)
    expected = np.argsort(-(vocabulary[:8] @ candidates.T), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(plain, expected)
    assert (plain != found).any()


def test_few_candidates_and_equal_ones():
    """All of them where fewer than wanted; copies in the order of their indices."""
    vectors = np.array([[0, 0], [1, 0], [1, 0]], np.float32)
    assert translations(vectors, vectors, vectors, 5, "cosine").tolist() == [
        [0, 1, 2],
        [1, 2, 0],
        [1, 2, 0],
    ]


def test_precision_counts_a_word_once_for_any_translation():
    """Three queries by hand: hit at 1, hit at 2 by the second translation, no hit."""
    found = np.array([[4, 1, 0], [3, 2, 0], [1, 2, 3]])
    gold = [{4, 1}, {9, 2}, {7}]
    assert precision_at(found, gold, 1) == pytest.approx(100 / 3)
    assert precision_at(found, gold, 2) == pytest.approx(200 / 3)
    assert precision_at(found, gold, 50) == pytest.approx(200 / 3)
