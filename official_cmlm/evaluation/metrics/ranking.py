"""Rankings of documents: exact search over a corpus in parts, and measures as trec_eval has them.

nDCG, average precision, reciprocal rank and recall are `ndcg_cut`, `map_cut`, `recip_rank` and
`recall` of trec_eval (NIST), which BEIR (Thakur et al. 2021) calls through pytrec_eval: the gain of
a document is its score, a document with a positive gain is relevant, one without a judgement is
not, and a query without a relevant document scores 0.

Measures are `[n]`, of the first k ranks of n queries. They take the gains at each rank, float
`[n, ranks]`, and the numbers of relevant documents, int `[n]`, which count documents that are not
in the corpus too.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from official_cmlm.evaluation.metrics.nearest import nearest


def search(queries: np.ndarray, parts: Iterable[np.ndarray], k: int) -> np.ndarray:
    """Returns the k documents with the largest inner product of each query, best first.

    Equal vectors get equal similarities: a matrix product would give them different last bits, so
    each vector is searched once and stands for all that are equal to it. Beside the queries, one
    part (two where it has equal vectors), one block of similarities (`metrics.nearest`), about 150
    bytes for each document and about 40 bytes for each of the n × k results are in memory at a
    time.

    Args:
      queries: float `[n, dim]`; give unit rows, of the parts too, for cosines.
      parts: float `[m, dim]` each; together the corpus.
      k: results for each query.

    Returns:
      int64 `[n, min(k, documents)]`: places in the corpus. Ties are ordered by place.
    """
    places_so_far = np.empty([len(queries), 0], np.int64)
    similarity = np.empty([len(queries), 0], np.float32)
    equals = _Equals(k)
    for part in parts:
        distinct = equals.add(part)
        if not len(distinct):
            continue
        start = equals.count - len(part)
        vectors = part if len(distinct) == len(part) else part[distinct]
        places, values = nearest(queries, vectors, min(k, len(distinct)))
        # Earlier places come first, and the sort is stable, so ties stay ordered by place.
        places_so_far = np.concatenate([places_so_far, distinct[places] + start], axis=1)
        similarity = np.concatenate([similarity, values], axis=1)
        order = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
        places_so_far = np.take_along_axis(places_so_far, order, axis=1)
        similarity = np.take_along_axis(similarity, order, axis=1)
    return equals.spread(places_so_far, similarity)


class _Equals:
    """The equal vectors of a corpus, found by digests of their bytes, for rankings of k places."""

    def __init__(self, k: int) -> None:
        self.count = 0
        self._k = k
        self._first: dict[bytes, int] = {}
        # First place -> the next ones with the same vector, in order.
        self._others: dict[int, list[int]] = {}

    def add(self, part: np.ndarray) -> np.ndarray:
        """Takes the next vectors, `[m, dim]`; returns int64, the rows that equal no earlier one."""
        distinct = []
        for row, vector in enumerate(np.ascontiguousarray(part)):
            place = self.count + row
            digest = hashlib.blake2b(vector, digest_size=16).digest()
            first = self._first.setdefault(digest, place)
            if first == place:
                distinct.append(row)
            else:
                others = self._others.setdefault(first, [])
                # Later places cannot be among the first k.
                if len(others) < self._k:
                    others.append(place)
        self.count += len(part)
        return np.array(distinct, np.int64)

    def spread(self, ranking: np.ndarray, similarity: np.ndarray) -> np.ndarray:
        """Adds to a ranking the other places with the same vectors; ties are ordered by place."""
        if not self._others:
            return ranking
        # No place is lost: all that precedes a vector's first place also precedes its other places.
        ranked = np.empty([len(ranking), min(self._k, self.count)], np.int64)
        for query, (places, values) in enumerate(zip(ranking, similarity)):
            others = [self._others.get(place, []) for place in places.tolist()]
            added = np.array([place for more in others for place in more], np.int64)
            places = np.concatenate([places, added])
            values = np.concatenate([values, np.repeat(values, [len(more) for more in others])])
            ranked[query] = places[np.lexsort((places, -values))[: ranked.shape[1]]]
        return ranked


def rank_gains(
    ranking: np.ndarray,
    judged: Sequence[Mapping[int, int]],
    k: int,
    ignored: Sequence[int],
) -> np.ndarray:
    """Returns the gains at each rank: float64 `[n, k]`, 0 without a judgement or a document.

    Args:
      ranking: int `[n, depth]`, places of documents, best first.
      judged: of each query, place of a document -> its gain; negative gains count as 0.
      k: ranks of the result.
      ignored: of each query, a place that is left out of its ranking, or -1.
    """
    gains = np.zeros([len(ranking), k])
    for query, (row, gain_of, own) in enumerate(zip(ranking.tolist(), judged, ignored)):
        own_gains = [max(gain_of.get(place, 0), 0) for place in row if place != own][:k]
        gains[query, : len(own_gains)] = own_gains
    return gains


def ideal_gains(judged: Sequence[Iterable[int]], k: int) -> np.ndarray:
    """Returns the k largest positive gains of each query, largest first: float64 `[n, k]`, else 0.

    `judged` has the gains of all judged documents of each query, in the corpus or not.
    """
    best = [sorted((gain for gain in gains if gain > 0), reverse=True)[:k] for gains in judged]
    return np.array([row + [0.0] * (k - len(row)) for row in best])


def ndcg(gains: np.ndarray, ideal: np.ndarray, k: int) -> np.ndarray:
    """Returns the normalised discounted cumulative gain, 0 to 1.

    The gain at rank r is divided by log2(r + 1), the sum by that of `ideal_gains`.
    """
    discounts = 1.0 / np.log2(np.arange(k) + 2)
    return _shares(gains[:, :k] @ discounts, ideal[:, :k] @ discounts)


def reciprocal_rank(gains: np.ndarray, k: int | None = None) -> np.ndarray:
    """Returns 1 / rank of the first relevant document, 0 if none is found; by default among all."""
    relevant = gains[:, :k] > 0
    return np.where(relevant.any(axis=1), 1.0 / (relevant.argmax(axis=1) + 1), 0.0)


def recall(gains: np.ndarray, relevant: np.ndarray, k: int) -> np.ndarray:
    """Returns the share of a query's relevant documents that are found."""
    return _shares((gains[:, :k] > 0).sum(axis=1), relevant)


def average_precision(gains: np.ndarray, relevant: np.ndarray, k: int) -> np.ndarray:
    """Returns the average precision.

    It is the sum of the precisions at the relevant documents that are found, divided by the number
    of all relevant documents.
    """
    hits = gains[:, :k] > 0
    precision = np.cumsum(hits, axis=1) / (np.arange(hits.shape[1]) + 1)
    return _shares((precision * hits).sum(axis=1), relevant)


def _shares(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    """Returns quotients, 0 where the whole is 0."""
    parts, wholes = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    return np.divide(parts, wholes, out=np.zeros_like(parts), where=wholes > 0)
