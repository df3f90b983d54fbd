"""Nearest neighbours by inner product: exact, in blocks of bounded memory, or by an index.

Evaluation, the mining of hard negatives and search share them.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.quantization import decoding, hamming, to_ubinary

# Bytes of one block of similarities; sorting needs two copies, together below a gigabyte.
BLOCK_BYTES = 1 << 28
# Candidates of a cell from which the index learns its cells, and cells that a query looks into.
_TRAINED_PER_CELL, _PROBED = 64, 32
# Codes of a byte a dimension that a core decodes at a time: they stay in its cache.
_DECODED = 1024


def unit(
    vectors: np.ndarray, dtype: type[np.floating] = np.float32, in_place: bool = False
) -> np.ndarray:
    """Returns the rows scaled to length 1; a zero row stays zero.

    Squares are summed in float64, in which those of large vectors do not overflow.

    Args:
      vectors: float `[n, dim]`.
      dtype: of the result; float64 where precision matters more than memory.
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
      exclude: int `[n]`, a candidate that may not be the query's neighbour, e.g. itself; or -1.
      block_bytes: memory of a block.

    Returns:
      (indices int64 `[n, k]`, similarities float32 `[n, k]`); ties are ordered by index.

    Raises:
      ValueError: if k is not in 1 … m, or 1 … m - 1 with `exclude`.
    """
    _check_k(k, len(candidates) - (exclude is not None))
    found = blocks(queries, candidates, block_bytes)
    return _nearest(found, len(queries), k, penalties, exclude)


def nearest_int8(
    queries: np.ndarray,
    codes: np.ndarray,
    ranges: np.ndarray,
    k: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds `nearest` among the vectors of codes of a byte a dimension; exact for these.

    The codes are decoded piece by piece, so they alone and one block of similarities are in memory.

    Args:
      queries: float `[n, dim]`.
      codes: int8 `[m, dim]` of `quantization.to_int8`.
      ranges: float32 `[2, dim]`, those of the codes.
      k: neighbours, 1 to m.
      block_bytes: memory of a block.

    Returns:
      As `nearest`.

    Raises:
      ValueError: if k is not in 1 … m, or the widths differ.
    """
    _check_k(k, len(codes))
    return _nearest(_int8_blocks(queries, codes, ranges, block_bytes), len(queries), k)


def nearest_bits(
    queries: np.ndarray, codes: np.ndarray, k: int = 1, block_bytes: int = BLOCK_BYTES
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k codes with the fewest signs unlike those of each query, nearest first.

    It is a first choice: `rescored` puts a larger number of these into the order of their products.

    Args:
      queries: float `[n, dim]`.
      codes: uint8 `[m, ceil(dim / 8)]` of `quantization.to_ubinary`.
      k: neighbours, 1 to m.
      block_bytes: memory of a block of distances.

    Returns:
      (indices int64 `[n, k]`, distances uint16 `[n, k]`); ties are ordered by index.

    Raises:
      ValueError: if k is not in 1 … m, or the widths differ.
    """
    _check_k(k, len(codes))
    bits = to_ubinary(queries)
    indices = np.empty([len(queries), k], np.int64)
    distances = np.empty([len(queries), k], np.uint16)
    step = max(1, block_bytes // (2 * len(codes)))
    for start in range(0, len(bits), step):
        rows = slice(start, start + step)
        block = hamming(bits[rows], codes)
        indices[rows] = _lowest(block, k)
        distances[rows] = np.take_along_axis(block, indices[rows], axis=1)
    return indices, distances


def rescored(
    queries: np.ndarray, chosen: np.ndarray, vectors_of: Callable[[np.ndarray], np.ndarray], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the k of each query's chosen candidates with the largest inner product, best first.

    Args:
      queries: float `[n, dim]`.
      chosen: int `[n, c]`, candidates of each query, by index.
      vectors_of: indices `[c]` -> their vectors, float `[c, dim]`.
      k: neighbours, 1 to c.

    Returns:
      As `nearest`.

    Raises:
      ValueError: if k is not in 1 … c.
    """
    _check_k(k, chosen.shape[1])
    indices = np.empty([len(queries), k], np.int64)
    values = np.empty([len(queries), k], np.float32)
    # Candidates are sorted by index, for the order of ties, and so that a file is read in order.
    for i, candidates in enumerate(np.sort(chosen, axis=1)):
        scores = vectors_of(candidates) @ np.asarray(queries[i], np.float32)
        best = _top(scores[np.newaxis], k)[0]
        indices[i], values[i] = candidates[best], scores[best]
    return indices, values


def _check_k(k: int, most: int) -> None:
    if not 1 <= k <= most:
        raise ValueError(f"k must be 1 to {most} (the candidates), got {k}")


def _nearest(
    found: Iterator[tuple[slice, np.ndarray]],
    count: int,
    k: int,
    penalties: np.ndarray | None = None,
    exclude: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best k of `count` queries from blocks of their similarities."""
    indices = np.empty([count, k], np.int64)
    values = np.empty([count, k], np.float32)
    for rows, similarity in found:
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
    """Imports the package faiss.

    Raises:
      UserError: if it is not installed.
    """
    check_extra("search", "faiss")
    import faiss

    return faiss


class CellIndex:
    """An approximate search: candidates lie in cells, and a query looks into the nearest of these.

    Cells are learned by k-means of a fixed seed. With few candidates all cells are looked into, and
    the search is exact.
    """

    def __init__(self, candidates: np.ndarray, probed: int = _PROBED) -> None:
        """Builds the index.

        Args:
          candidates: float `[m, dim]`; give `unit` rows for cosines.
          probed: cells that a query looks into, at most all. More find more, and take longer.

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
        self._index.nprobe = min(cells, probed)

    @classmethod
    def from_bytes(cls, data: np.ndarray, probed: int = _PROBED) -> "CellIndex":
        """Reads the index that `to_bytes` returned; the bytes must come from a trusted place.

        Raises:
          UserError: if the package faiss is not installed, or the bytes hold something else.
        """
        faiss = import_faiss()
        made = cls.__new__(cls)
        try:
            made._index = faiss.deserialize_index(data)
        except RuntimeError:
            # Its message is a line of C++ and the place in faiss's source.
            raise UserError("no index of faiss, or a damaged one") from None
        if not isinstance(made._index, faiss.IndexIVFFlat):
            raise UserError(f"an index {type(made._index).__name__} of faiss; expected cells")
        if made._index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise UserError("an index of faiss that does not search by inner product")
        if not _numbers_its_rows(made._index):
            raise UserError("an index of faiss whose ids are not the numbers of its vectors")
        made._index.nprobe = min(made._index.nlist, probed)
        return made

    def __len__(self) -> int:
        return self._index.ntotal

    @property
    def width(self) -> int:
        """The width of the vectors."""
        return self._index.d

    def to_bytes(self) -> np.ndarray:
        """Returns all of the index: uint8 `[bytes]`."""
        return import_faiss().serialize_index(self._index)

    def add(self, candidates: np.ndarray) -> None:
        """Appends candidates, float `[m, dim]`, to the cells as they were learned."""
        self._index.add(np.ascontiguousarray(candidates, np.float32))

    def vectors(self) -> np.ndarray:
        """Returns all candidates: float32 `[m, dim]`."""
        self._index.make_direct_map()
        found = self._index.reconstruct_n(0, len(self))
        # It takes memory, and candidates are added without it.
        self._index.make_direct_map(False)
        return found

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Finds neighbours as the function `nearest`; an index is -1 where fewer were found."""
        values, indices = self._index.search(np.ascontiguousarray(queries, np.float32), k)
        return indices, values


def _numbers_its_rows(index: Any) -> bool:
    """Whether the ids in the cells are 0 to ntotal - 1, each once."""
    faiss, lists = import_faiss(), index.invlists
    if lists is None or lists.nlist != index.nlist or index.quantizer.ntotal != index.nlist:
        return False
    sizes = [lists.list_size(cell) for cell in range(index.nlist)]
    if sum(sizes) != index.ntotal:
        return False
    seen = np.zeros([index.ntotal], bool)
    for cell, size in enumerate(sizes):
        if size:
            ids = faiss.rev_swig_ptr(lists.get_ids(cell), size)
            if ids.min() < 0 or ids.max() >= index.ntotal:
                return False
            seen[ids] = True
    return bool(seen.all())


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


def _int8_blocks(
    queries: np.ndarray, codes: np.ndarray, ranges: np.ndarray, block_bytes: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields `blocks` of the vectors that codes represent, on all cores."""
    queries = np.asarray(queries, np.float32)
    scales, offsets = decoding(ranges, codes.shape[1])
    scaled, shifts = queries * scales, queries @ offsets
    step = max(1, block_bytes // (4 * len(codes)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    bounds = np.linspace(0, len(codes), (cores or 1) + 1, dtype=np.int64)

    def fill(similarity: np.ndarray, rows: slice, first: int, last: int) -> None:
        decoded = np.empty([_DECODED, codes.shape[1]], np.float32)
        for start in range(first, last, _DECODED):
            end = min(start + _DECODED, last)
            part = decoded[: end - start]
            np.copyto(part, codes[start:end])
            np.matmul(scaled[rows], part.T, out=similarity[:, start:end])
        similarity[:, first:last] += shifts[rows, np.newaxis]

    with ThreadPoolExecutor(cores) as pool:
        for start in range(0, len(queries), step):
            rows = slice(start, min(start + step, len(queries)))
            similarity = np.empty([rows.stop - start, len(codes)], np.float32)
            parts = [
                pool.submit(fill, similarity, rows, first, last)
                for first, last in itertools.pairwise(bounds.tolist())
            ]
            for part in parts:
                part.result()
            yield rows, similarity


def _top(similarity: np.ndarray, k: int) -> np.ndarray:
    """Returns indices of the k largest values of each row; ties are ordered by index."""
    if k == 1:
        return np.argmax(similarity, axis=1)[:, np.newaxis]
    return _lowest(-similarity, k)


def _lowest(costs: np.ndarray, k: int) -> np.ndarray:
    """Returns indices of the k smallest values of each row; ties are ordered by index."""
    if k * 8 >= costs.shape[1]:
        return np.argsort(costs, axis=1, kind="stable")[:, :k]
    # All that reach the k-th smallest value, so that ties with it are ordered by index too.
    border = np.partition(costs, k - 1, axis=1)[:, k - 1]
    rows = np.empty([len(costs), k], np.int64)
    for i, row in enumerate(costs):
        reached = np.flatnonzero(row <= border[i])
        rows[i] = reached[np.argsort(row[reached], kind="stable")[:k]]
    return rows
