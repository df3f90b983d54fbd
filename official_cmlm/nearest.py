"""Nearest neighbours by inner product: exact, in blocks of bounded memory, or by an index.

Evaluation and the mining of hard negatives share them.
"""

from collections.abc import Iterator
from types import ModuleType

import numpy as np

from official_cmlm.errors import UserError

# Bytes of one block of similarities; sorting needs two copies, together below a gigabyte.
BLOCK_BYTES = 1 << 28
# Candidates of a cell from which the index learns its cells, and cells that a query looks into.
_TRAINED_PER_CELL, _PROBED = 64, 32


def unit(vectors: np.ndarray, in_place: bool = False) -> np.ndarray:
    """Rows scaled to length 1, float32; a zero row stays zero.

    Args:
      vectors: float `[n, dim]`.
      in_place: overwrite `vectors`, which must be float32; saves the memory of a copy.
    """
    scaled = vectors if in_place else np.array(vectors, np.float32)
    norms = np.sqrt(np.einsum("nd,nd->n", scaled, scaled, dtype=np.float32))
    norms[norms == 0] = 1.0
    scaled /= norms[:, np.newaxis]
    return scaled


def nearest(
    queries: np.ndarray,
    candidates: np.ndarray,
    k: int = 1,
    penalties: np.ndarray | None = None,
    exclude: np.ndarray | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates with the largest inner product of each query, best first.

    Beside the arguments, one block of similarities (queries × candidates) is in memory at a time: a
    million candidates of 768 dimensions take their own 3 GB and less than 1 GB more.

    Args:
      queries: float `[n, dim]`; give `unit` rows for cosines.
      candidates: float `[m, dim]`.
      k: neighbours, 1 to m.
      penalties: float `[m]`, subtracted from the similarities of each candidate (see CSLS).
      exclude: int `[n]`, a candidate that may not be the query's neighbour, e.g. itself; or -1.
      block_bytes: memory of a block.

    Returns:
      (indices int64 `[n, k]`, similarities float32 `[n, k]`); ties are ordered by index.

    Raises:
      ValueError: if k is not in 1 … m, or 1 … m - 1 with `exclude`.
    """
    most = len(candidates) - (exclude is not None)
    if not 1 <= k <= most:
        raise ValueError(f"k must be 1 to {most} (the candidates), got {k}")
    indices = np.empty([len(queries), k], np.int64)
    values = np.empty([len(queries), k], np.float32)
    for rows, similarity in blocks(queries, candidates, block_bytes):
        if penalties is not None:
            similarity -= penalties
        if exclude is not None:
            mine = exclude[rows]
            known = np.flatnonzero(mine >= 0)
            similarity[known, mine[known]] = -np.inf
        indices[rows] = _top(similarity, k)
        values[rows] = np.take_along_axis(similarity, indices[rows], axis=1)
    return indices, values


def import_faiss() -> ModuleType:
    """The package faiss.

    Raises:
      UserError: if it is not installed.
    """
    try:
        import faiss
    except ImportError:
        raise UserError(
            "--search=faiss: the package faiss is not installed; pip install faiss-cpu, or pass "
            "--search=exact"
        ) from None
    return faiss


class CellIndex:
    """An approximate search: candidates lie in cells, and a query looks into the nearest of these.

    Cells are learned by k-means of a fixed seed. With few candidates all cells are looked into, and
    the search is exact.
    """

    def __init__(self, candidates: np.ndarray) -> None:
        """Builds the index.

        Args:
          candidates: float `[m, dim]`; give `unit` rows for cosines.

        Raises:
          UserError: if the package faiss is not installed.
        """
        faiss = import_faiss()
        candidates = np.ascontiguousarray(candidates, np.float32)
        count, width = candidates.shape
        # About as many candidates in a cell as there are cells.
        cells = max(1, min(int(count**0.5), count // _TRAINED_PER_CELL))
        self._index = faiss.index_factory(width, f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
        self._index.cp.seed = 1
        self._index.train(candidates)
        self._index.add(candidates)
        self._index.nprobe = min(cells, _PROBED)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As the function `nearest`; the index is -1 where fewer than k were found."""
        values, indices = self._index.search(np.ascontiguousarray(queries, np.float32), k)
        return indices, values


def blocks(
    queries: np.ndarray, candidates: np.ndarray, block_bytes: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields (rows, their inner products with all candidates, float32) of all queries."""
    queries = np.asarray(queries, np.float32)
    candidates = np.asarray(candidates, np.float32)
    step = max(1, block_bytes // (4 * max(1, len(candidates))))
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        yield rows, queries[rows] @ candidates.T


def _top(similarity: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest values of each row; ties are ordered by index."""
    if k == 1:
        return np.argmax(similarity, axis=1)[:, np.newaxis]
    if k * 8 >= similarity.shape[1]:
        return np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    # All that reach the k-th largest value, so that ties with it are ordered by index too.
    border = -np.partition(-similarity, k - 1, axis=1)[:, k - 1]
    rows = np.empty([len(similarity), k], np.int64)
    for i, row in enumerate(similarity):
        reached = np.flatnonzero(row >= border[i])
        rows[i] = reached[np.argsort(-row[reached], kind="stable")[:k]]
    return rows
