"""Bilingual lexicon induction on arrays: an orthogonal map and retrieval by CSLS."""

from collections.abc import Sequence

import numpy as np

from official_cmlm.evaluation.metrics.nearest import mean_of_nearest, nearest, unit

RETRIEVALS = ("csls", "cosine")


def procrustes(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The orthogonal W that makes source @ W nearest to target (Schönemann 1966; MUSE).

    W = U Vᵀ of the singular value decomposition of sourceᵀ · target minimises ‖source W − target‖
    over all orthogonal matrices.

    Args:
      source, target: float `[n, dim]`, row i of one translates row i of the other.

    Returns:
      float64 `[dim, dim]`.

    Raises:
      ValueError: if the shapes differ or there are no rows.
    """
    if source.shape != target.shape or not len(source):
        raise ValueError(f"need pairs, got {list(source.shape)} and {list(target.shape)}")
    left, _, right = np.linalg.svd(source.astype(np.float64).T @ target.astype(np.float64))
    return left @ right


def centred(vectors: np.ndarray) -> np.ndarray:
    """Unit rows, their mean subtracted, of length 1 again (Artetxe et al. 2018): float32."""
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
    """The best candidates of each query, best first.

    CSLS (Conneau et al. 2018) of x and y is 2 cos(x, y) − r(x) − r(y), with r the mean cosine with
    the k nearest of the other language. r(x) is the same for all candidates of x and left out.

    Args:
      queries: float `[n, dim]`, unit rows.
      candidates: float `[m, dim]`, unit rows.
      vocabulary: float `[v, dim]`, unit rows: words of the queries' language, among which a
        candidate's r is taken.
      most: candidates per query; all where there are fewer.
      retrieval: `csls` or `cosine`.
      k: neighbours of CSLS.

    Returns:
      int64 `[n, min(most, m)]`; of equal ones the lower index first.

    Raises:
      ValueError: for an unknown retrieval.
    """
    if retrieval not in RETRIEVALS:
        raise ValueError(f"retrieval must be one of {', '.join(RETRIEVALS)}, got {retrieval!r}")
    penalties = None
    if retrieval == "csls":
        penalties = mean_of_nearest(candidates, vocabulary, k) / 2
    return nearest(queries, candidates, min(most, len(candidates)), penalties)[0]


def precision_at(found: np.ndarray, gold: Sequence[set[int]], k: int) -> float:
    """Share, times 100, of queries with any right candidate among their first k (MUSE).

    Args:
      found: int `[n, most]`, best first.
      gold: for each query the right candidates.
      k: how many count; all where there are fewer.

    Raises:
      ValueError: if there are no queries or their number differs.
    """
    if len(found) != len(gold) or not len(gold):
        raise ValueError(f"need gold for each query, got {len(gold)} for {len(found)}")
    right = [not known.isdisjoint(row) for row, known in zip(found[:, :k].tolist(), gold)]
    return 100.0 * float(np.mean(right))
