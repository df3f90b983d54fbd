"""Nearest neighbours by inner product, exact, in blocks of bounded memory.

Evaluation, the mining of hard negatives and search share this code.
"""

import numpy as np

# Bytes of one block of similarities; sorting needs two copies, together below a gigabyte.
BLOCK_BYTES = 1 << 28


def unit(
    vectors: np.ndarray, dtype: type[np.floating] = np.float32, in_place: bool = False
) -> np.ndarray:
    """Returns the rows scaled to length 1; a zero row stays zero.

    Squares are summed in float64, where squares of large values do not overflow.

    Args:
      vectors: float `[n, dim]`.
      dtype: type of the result; float64 where precision matters more than memory.
      in_place: overwrite `vectors`, which must have that type; saves the memory of a copy.
    """
    scaled = vectors if in_place else np.array(vectors, dtype)
    squares = np.einsum("nd,nd->n", scaled, scaled, dtype=np.float64)
    norms = np.maximum(np.sqrt(squares), np.finfo(dtype).tiny)
    return np.divide(scaled, norms[:, np.newaxis], out=scaled, casting="same_kind")


def nearest(
    queries: np.ndarray,
    candidates: np.ndarray,
    k: int = 1,
    penalties: np.ndarray | None = None,
    exclude: np.ndarray | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k candidates with the largest inner product of each query, best first.

    Beside the arguments, one block of similarities (queries × candidates) is in memory at a time: a
    million candidates of 768 dimensions take their own 3 GB and less than 1 GB more.

    Args:
      queries: float `[n, dim]`; give `unit` rows for cosines.
      candidates: float `[m, dim]`.
      k: neighbours, 1 to m.
      penalties: float `[m]`, subtracted from the similarities of each candidate (see CSLS).
      exclude: int `[n]`, for each query a candidate that may not be its neighbour, e.g. the query
        itself; -1 for none.
      block_bytes: memory of a block.

    Returns:
      (indices int64 `[n, k]`, similarities float32 `[n, k]`); ties are ordered by index.

    Raises:
      ValueError: if k is not in 1 … m, or 1 … m - 1 with `exclude`.
    """
    most = len(candidates) - (exclude is not None)
    if not 1 <= k <= most:
        raise ValueError(f"k must be 1 to {most} (the candidates), got {k}")
    queries, candidates = (np.asarray(rows, np.float32) for rows in (queries, candidates))
    indices = np.empty([len(queries), k], np.int64)
    values = np.empty([len(queries), k], np.float32)
    step = max(1, block_bytes // (4 * len(candidates)))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        similarity = queries[rows] @ candidates.T
        if penalties is not None:
            similarity -= penalties
        if exclude is not None:
            mine = exclude[rows]
            excluded = np.flatnonzero(mine >= 0)
            similarity[excluded, mine[excluded]] = -np.inf
        indices[rows] = top(similarity, k)
        values[rows] = np.take_along_axis(similarity, indices[rows], axis=1)
    return indices, values


def top(similarity: np.ndarray, k: int) -> np.ndarray:
    """Returns indices of the k largest values of each row; ties are ordered by index."""
    if k == 1:
        return np.argmax(similarity, axis=1)[:, np.newaxis]
    costs = -similarity
    if k * 8 >= costs.shape[1]:
        return np.argsort(costs, axis=1, kind="stable")[:, :k]
    # All values up to the k-th smallest are sorted, so that ties with it are ordered by index too.
    border = np.partition(costs, k - 1, axis=1)[:, k - 1]
    rows = np.empty([len(costs), k], np.int64)
    for i, row in enumerate(costs):
        reached = np.flatnonzero(row <= border[i])
        rows[i] = reached[np.argsort(row[reached], kind="stable")[:k]]
    return rows
