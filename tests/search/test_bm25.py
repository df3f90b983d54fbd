"""BM25 by its formula, its words in several scripts, and the join of rankings."""

import collections
import math

import numpy as np
import pytest

from official_cmlm.search.bm25 import Bm25, join_rankings, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 2nd-hand, GRÜN_1", ["it", "s", "2nd", "hand", "grün_1"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("iPhone手机壳 店", ["iphone", "手机", "机壳", "店"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("e\u0301tude …", ["e\u0301tude"]),
        (" — ", []),
    ],
)
def test_words_of_several_scripts(text, words):
    assert split_words(text) == words


def _score(query, text, texts):
    """Computes the formula word by word."""
    mean = sum(len(t.split()) for t in texts) / len(texts)
    score = 0.0
    for word in query.split():
        holding = sum(word in t.split() for t in texts)
        times = collections.Counter(text.split())[word]
        part = 1.2 * (0.25 + 0.75 * len(text.split()) / mean)
        rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        score += rarity * times * 2.2 / (times + part)
    return score


def test_ranking_is_that_of_the_formula():
    """Ties are ordered by row; texts without a word of the query are not found."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*"abcdefghij"], rng.integers(1, 9))) for _ in range(50)]
    index, queries = Bm25(texts), ["a b", "j j a", "x c", "x", ""]
    for query, rows in zip(queries, index.search(queries, 30)):
        scores = [_score(query, text, texts) for text in texts]
        best = sorted((row for row in range(50) if scores[row]), key=lambda r: (-scores[r], r))
        assert rows.tolist() == (best[:30] + [-1] * 30)[:30]
    even = index.search(["a b"], 30, lambda row: row % 2 == 0)[0]
    everything = index.search(["a b"], 50)[0].tolist()
    assert even[even >= 0].tolist() == [row for row in everything if row >= 0 and row % 2 == 0][:30]


def test_texts_without_words_are_not_found():
    assert Bm25(["", "…"]).search(["a"], 2).tolist() == [[-1, -1]]


def test_rankings_are_joined_by_reciprocal_ranks():
    """Two rows of equal scores stay in the order of the rankings."""
    rows, scores = join_rankings([np.array([[7, 2, 5]]), np.array([[3, 5, -1]])], 5)
    assert rows.tolist() == [[5, 7, 3, 2, -1]]
    expected = [1 / 63 + 1 / 62, 1 / 61, 1 / 61, 1 / 62, -1]
    np.testing.assert_allclose(scores, [expected])
    assert join_rankings([np.array([[7, 2]])], 1)[0].tolist() == [[7]]
