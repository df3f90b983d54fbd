"""Bilingual lexicon induction on arrays: orthogonal mapping, CSLS retrieval, precision at k."""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import orthogonal_procrustes

from official_cmlm.evaluation.metrics.nearest import mean_of_nearest, nearest, unit

RETRIEVALS = ("csls", "cosine")


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns the orthogonal W with source @ W closest to target (Schönemann 1966; MUSE).

    Args:
      source, target: float `[n, dim]`, row i of one translates row i of the other.

    Returns:
      float64 `[dim, dim]`.
    """
    return orthogonal_procrustes(source.astype(np.float64), target.astype(np.float64))[0]


def centred(vectors: np.ndarray) -> np.ndarray:
    """Subtracts the mean of unit rows and scales them to length 1 again (Artetxe et al. 2018)."""
    scaled = unit(vectors)
    return unit(scaled - scaled.mean(axis=0, dtype=np.float64))


def translations(
    queries: np.ndarray,
    candidates: np.ndarray,
    vocabulary: np.ndarray,
    most: int,
    retrieval: str = "csls",
    k: int = 10,
) -> np.ndarray:
    """Returns the best candidates of each query, best first.

    CSLS (Conneau et al. 2018) of x and y is 2 cos(x, y) − r(x) − r(y), where r is the mean cosine
    with the k nearest neighbours in the other language. r(x) does not change the order of x's
    candidates and is left out.

    Args:
      queries: float `[n, dim]`, unit rows.
      candidates: float `[m, dim]`, unit rows.
      vocabulary: float `[v, dim]`, unit rows: the words of the queries' language from which a
        candidate's r is computed.
      most: number of candidates per query; all if there are fewer.
      retrieval: `csls` or `cosine`.
      k: number of neighbours in r.

    Returns:
      int64 `[n, min(most, m)]`; ties are ordered by index.
    """
    penalties = mean_of_nearest(candidates, vocabulary, k) / 2 if retrieval == "csls" else None
    return nearest(queries, candidates, min(most, len(candidates)), penalties)[0]


def precision_at(found: np.ndarray, gold: Sequence[set[int]], k: int) -> float:
    """Returns the percentage of queries with a correct candidate among the first k (MUSE).

    Args:
      found: int `[n, most]`, best first.
      gold: the correct candidates of each query.
      k: number of candidates to look at; all if there are fewer.
    """
    right = [not known.isdisjoint(row) for row, known in zip(found[:, :k].tolist(), gold)]
    return 100.0 * float(np.mean(right))
