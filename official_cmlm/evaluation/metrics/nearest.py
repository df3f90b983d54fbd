"""Recall at 1 by exact nearest neighbours."""

from collections.abc import Sequence

import numpy as np

from official_cmlm.evaluation.encoder import Encode
from official_cmlm.vectors.nearest import nearest, unit

__all__ = ["finds_own_row", "nearest", "next_sentence_recall", "unit"]


def finds_own_row(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Returns whether candidate i has the largest cosine with query i: bool `[n]`.

    Both are float `[n, dim]`. Ties go to the lowest index, as in exact search; a zero vector has
    cosine 0 with all candidates.
    """
    indices, _ = nearest(unit(queries), unit(candidates))
    return indices[:, 0] == np.arange(len(queries))


def next_sentence_recall(encode: Encode, first: Sequence[str], second: Sequence[str]) -> float:
    """Returns the recall at 1, 0 to 1, of the sentences `second` that follow those of `first`.

    All of `second` are candidates of every query. With t of them tied for the largest cosine
    (within 1e-6), a query whose successor is among them counts 1 / t.
    """
    queries, candidates = (unit(encode(list(texts)), np.float64) for texts in (first, second))
    similarity = queries @ candidates.T
    best = similarity.max(axis=1, keepdims=True)
    tied = np.isclose(similarity, best, rtol=0.0, atol=1e-6)
    hits = np.diagonal(tied) / tied.sum(axis=1)
    return float(hits.mean())
