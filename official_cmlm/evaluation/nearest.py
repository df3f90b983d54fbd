"""Exact nearest neighbours by cosine or CSLS, in blocks that fit a stated memory."""

from collections.abc import Iterator

import numpy as np

# Bytes of one block of similarities: with two copies while it is sorted, well below a gigabyte.
_BLOCK_BYTES = 1 << 28


def unit(vectors: np.ndarray, in_place: bool = False) -> np.ndarray:
    """Rows scaled to length 1, float32; a row of zeros stays zero, so it is near to nothing.

    Args:
      vectors: float `[n, dim]`.
      in_place: overwrite `vectors`, which must be float32; for matrices that fit the memory once.
    """
    scaled = vectors if in_place else np.array(vectors, np.float32)
    norms = np.sqrt(np.einsum("nd,nd->n", scaled, scaled, dtype=np.float32))
    norms[norms == 0] = 1.0
    scaled /= norms[:, np.newaxis]
    return scaled


def unit64(vectors: np.ndarray) -> np.ndarray:
    """The same in float64, where digits matter more than memory."""
    vectors = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def nearest(
    queries: np.ndarray,
    candidates: np.ndarray,
    k: int = 1,
    penalties: np.ndarray | None = None,
    exclude: np.ndarray | None = None,
    block_bytes: int = _BLOCK_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates with the largest inner product of each query, best first.

    Beside the arguments it holds one block of similarities (queries × candidates) at a time, so a
    million candidates of 768 dimensions take their own 3 GB and less than 1 GB more.

    Args:
      queries: float `[n, dim]`; give `unit` rows for cosines.
      candidates: float `[m, dim]`.
      k: neighbours, 1 to m.
      penalties: float `[m]` subtracted from each candidate's similarities.
      exclude: int `[n]`, a candidate that is never a query's neighbour (itself), or -1.
      block_bytes: memory of a block.

    Returns:
      (indices int64 `[n, k]`, similarities float32 `[n, k]`); of equal ones the lower index first.

    Raises:
      ValueError: if k is not 1 to m, less one where `exclude` is given.
    """
    most = len(candidates) - (exclude is not None)
    if not 1 <= k <= most:
        raise ValueError(f"k must be 1 to {most} (the candidates), got {k}")
    indices = np.empty([len(queries), k], np.int64)
    values = np.empty([len(queries), k], np.float32)
    for rows, similarity in _blocks(queries, candidates, block_bytes):
        if penalties is not None:
            similarity -= penalties
        if exclude is not None:
            mine = exclude[rows]
            known = np.flatnonzero(mine >= 0)
            similarity[known, mine[known]] = -np.inf
        indices[rows] = _top(similarity, k)
        values[rows] = np.take_along_axis(similarity, indices[rows], axis=1)
    return indices, values


def mean_of_nearest(
    queries: np.ndarray, candidates: np.ndarray, k: int, block_bytes: int = _BLOCK_BYTES
) -> np.ndarray:
    """Mean similarity of each query with its k nearest candidates: float32 `[n]`.

    CSLS's r (Conneau et al. 2018) and the margin's denominator (Artetxe and Schwenk 2019). With
    fewer than k candidates all of them count.

    Raises:
      ValueError: if there are no candidates or k is below 1.
    """
    if not len(candidates) or k < 1:
        raise ValueError(f"need candidates and k >= 1, got {len(candidates)} and {k}")
    k = min(k, len(candidates))
    means = np.empty(len(queries), np.float32)
    for rows, similarity in _blocks(queries, candidates, block_bytes):
        # Of the negated values the first k: partitioning near the front is several times faster.
        np.negative(similarity, out=similarity)
        similarity.partition(k - 1, axis=1)
        means[rows] = -similarity[:, :k].mean(axis=1)
    return means


def _blocks(
    queries: np.ndarray, candidates: np.ndarray, block_bytes: int
) -> Iterator[tuple[slice, np.ndarray]]:
    queries = np.asarray(queries, np.float32)
    candidates = np.asarray(candidates, np.float32)
    step = max(1, block_bytes // (4 * max(1, len(candidates))))
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        yield rows, queries[rows] @ candidates.T


def _top(similarity: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest of each row, ties in the order of their indices."""
    if k == 1:
        return np.argmax(similarity, axis=1)[:, np.newaxis]
    if k * 8 >= similarity.shape[1]:
        return np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    # All that reach the k-th largest value, so that a tie at the border is not cut by chance.
    border = -np.partition(-similarity, k - 1, axis=1)[:, k - 1]
    rows = np.empty([len(similarity), k], np.int64)
    for i, row in enumerate(similarity):
        reached = np.flatnonzero(row >= border[i])
        rows[i] = reached[np.argsort(-row[reached], kind="stable")[:k]]
    return rows
