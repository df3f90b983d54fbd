"""BM25, a ranking of texts by words, and the join of rankings.

Vectors find what means the same; words find names, numbers and terms that an encoder does not know.
The package bm25s finds the same rows, but would take the place of some 20 lines: the words of
scripts without spaces, the order of equal scores and the join of rankings would stay here.
"""

import array
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from official_cmlm.common.languages import UNSPACED

# k1, how soon more occurrences of a word count no more; b, how much long texts are held back.
_SATURATION, _LENGTH = 1.2, 0.75
# Cormack et al. 2009: the first rank counts as the 61st, so that no single ranking decides.
_BEFORE_FIRST = 60
# Texts of each ranking that are joined, if not more are wanted.
JOINED = 100


@functools.cache
def _compile_words() -> re.Pattern:
    """Returns a pattern of words, or of letters of a script without spaces."""
    unspaced = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
    # Python's \w has no combining marks, the last of which are variation selectors below U+1F000.
    marks = (chr(code) for code in range(0x1F000) if unicodedata.category(chr(code))[0] == "M")
    spaced = "".join(mark for mark in marks if not re.match(f"[{unspaced}]", mark))
    return re.compile(rf"([{unspaced}]+)|(?:[^\W{unspaced}]|[{spaced}])+")


def split_words(text: str) -> list[str]:
    """Returns the words of a text in lower case; of scripts without spaces pairs of characters.

    >>> split_words("The cats' 2nd Käse, 東京都")
    ['the', 'cats', '2nd', 'käse', '東京', '京都']
    """
    words = []
    for match in _compile_words().finditer(text.lower()):
        run = match[1]
        words += map("".join, itertools.pairwise(run)) if run and len(run) > 1 else [match[0]]
    return words


class Bm25:
    """The words of texts, by which texts are found.

    A word that occurs f times in a text of length l (1 for the mean length), and in d of n texts,
    adds log(1 + (n - d + 0.5) / (d + 0.5)) · f (k1 + 1) / (f + k1 (1 - b + b l)) (Robertson and
    Zaragoza 2009, "The Probabilistic Relevance Framework"; the 1 in the logarithm, as in Lucene,
    keeps words of most texts from counting against a text).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """Counts the words of the texts."""
        self._numbers: dict[str, int] = {}
        words, lengths = array.array("q"), []
        for text in texts:
            split = split_words(text)
            words.extend(self._numbers.setdefault(word, len(self._numbers)) for word in split)
            lengths.append(len(split))
        self._count = count = len(lengths)
        relative = np.array(lengths) / max(np.mean(lengths), 1e-9)
        # A word in a text is one number, and sorted they stand by word.
        rows = np.repeat(np.arange(count), lengths)
        places, times = np.unique(np.array(words) * count + rows, return_counts=True)
        numbers, self._rows = np.divmod(places, count)
        self._ends = np.searchsorted(numbers, np.arange(len(self._numbers) + 1))
        texts_with = np.diff(self._ends)
        rarity = np.log1p((count - texts_with + 0.5) / (texts_with + 0.5))
        least = _SATURATION * (1 - _LENGTH + _LENGTH * relative[self._rows])
        self._weights = rarity[numbers] * times * (_SATURATION + 1) / (times + least)

    def search(
        self, queries: Sequence[str], k: int, passes: Callable[[int], bool] | None = None
    ) -> np.ndarray:
        """Returns the k texts with the largest scores of each query, best first, ties by row.

        Args:
          queries: n texts.
          k: texts for each query.
          passes: whether a row may be found. Default: all may.

        Returns:
          int64 `[n, k]`, rows; -1 where fewer texts have a word of the query.
        """
        best = np.full([len(queries), k], -1)
        for i, query in enumerate(queries):
            scores = np.zeros(self._count)
            for number in filter(None.__ne__, map(self._numbers.get, split_words(query))):
                part = slice(self._ends[number], self._ends[number + 1])
                scores[self._rows[part]] += self._weights[part]
            rows = np.flatnonzero(scores)
            rows = rows[np.argsort(-scores[rows], kind="stable")].tolist()
            chosen = list(itertools.islice(filter(passes, rows) if passes else rows, k))
            best[i, : len(chosen)] = chosen
        return best


def join_rankings(rankings: Sequence[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Joins rankings by reciprocal rank fusion: the sum of 1 / (60 + rank) is a row's score.

    The source is Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion outperforms Condorcet
    and individual Rank Learning Methods". Of equal scores, that of the first ranking is first.

    Args:
      rankings: int `[n, any]` each, rows of n queries, best first; -1 where there is none.
      k: rows for each query.

    Returns:
      (rows int64 `[n, k]`, scores float64 `[n, k]`); both are -1 where there are fewer.
    """
    places = np.hstack(rankings)
    shares = np.hstack([1 / (_BEFORE_FIRST + 1 + np.arange(r.shape[1])) for r in rankings])
    best, scores = np.full([len(places), k], -1), np.full([len(places), k], -1.0)
    for i, row in enumerate(places):
        named = row >= 0
        distinct, first, numbers = np.unique(row[named], return_index=True, return_inverse=True)
        sums = np.bincount(numbers, shares[named], len(distinct))
        order = np.lexsort((first, -sums))[:k]
        best[i, : len(order)], scores[i, : len(order)] = distinct[order], sums[order]
    return best, scores
