"""Measures by exact nearest neighbours: recall at 1, the mean of the k nearest."""

from collections.abc import Sequence

import numpy as np

from official_cmlm.evaluation.encoding import Encode
from official_cmlm.nearest import nearest, unit

__all__ = ["finds_own_row", "mean_of_nearest", "nearest", "next_sentence_recall", "unit"]


def mean_of_nearest(queries: np.ndarray, candidates: np.ndarray, k: int) -> np.ndarray:
    """Returns the mean similarity of each query with its k nearest candidates: float32 `[n]`.

    This is r in CSLS (Conneau et al. 2018) and the denominator of the ratio margin (Artetxe and
    Schwenk 2019). With fewer than k candidates the mean is over all of them.
    """
    return nearest(queries, candidates, min(k, len(candidates)))[1].mean(axis=1)


def finds_own_row(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Returns whether candidate i has the largest cosine with query i: bool `[n]`.

    Ties go to the lowest index, as in exact search; a zero vector has cosine 0 with all candidates.

    Args:
      queries, candidates: float `[n, dim]`; row i of one belongs to row i of the other.
    """
    indices, _ = nearest(unit(queries), unit(candidates))
    return indices[:, 0] == np.arange(len(queries))


def next_sentence_recall(encode: Encode, first: Sequence[str], second: Sequence[str]) -> float:
    """Returns the recall at 1 of the following sentence among all successors, by cosine.

    Args:
      encode: maps n strings to an array `[n, dim]`.
      first: n sentences, the queries.
      second: the sentence that follows each of them; all n are the candidates of every query.

    Returns:
      The share of queries, 0 to 1, whose own successor has the largest cosine. With t candidates
      tied for the largest cosine (within 1e-6), a query whose successor is among them counts 1 / t.
    """
    queries, candidates = (unit(encode(list(texts)), np.float64) for texts in (first, second))
    similarity = queries @ candidates.T
    best = similarity.max(axis=1, keepdims=True)
    tied = np.isclose(similarity, best, rtol=0.0, atol=1e-6)
    hits = np.diagonal(tied) / tied.sum(axis=1)
    return float(hits.mean())
