"""Exact nearest neighbours by inner product, in blocks of bounded memory, and recall at 1."""

from collections.abc import Iterator, Sequence

import numpy as np

from official_cmlm.evaluation.encoding import Encode

# Bytes of one block of similarities; sorting needs two copies, together below a gigabyte.
_BLOCK_BYTES = 1 << 28


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


def unit64(vectors: np.ndarray) -> np.ndarray:
    """`unit` in float64, where precision matters more than memory."""
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

    This is r in CSLS (Conneau et al. 2018) and the denominator of the ratio margin (Artetxe and
    Schwenk 2019). With fewer than k candidates the mean is over all of them.

    Raises:
      ValueError: if there are no candidates or k is below 1.
    """
    if not len(candidates) or k < 1:
        raise ValueError(f"need candidates and k >= 1, got {len(candidates)} and {k}")
    k = min(k, len(candidates))
    means = np.empty(len(queries), np.float32)
    for rows, similarity in _blocks(queries, candidates, block_bytes):
        # Negated, so that the k best come first: partitioning near the front is much faster.
        np.negative(similarity, out=similarity)
        similarity.partition(k - 1, axis=1)
        means[rows] = -similarity[:, :k].mean(axis=1)
    return means


def finds_own_row(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Whether candidate i has the largest cosine with query i: bool `[n]`.

    Ties go to the lowest index, as in exact search; a zero vector has cosine 0 with all candidates.

    Args:
      queries, candidates: float `[n, dim]`; row i of one belongs to row i of the other.

    Raises:
      ValueError: if the numbers of rows differ or are 0.
    """
    if len(queries) != len(candidates) or not len(queries):
        raise ValueError(
            f"need as many queries as candidates, got {len(queries)} and {len(candidates)}"
        )
    indices, _ = nearest(unit(queries), unit(candidates))
    return indices[:, 0] == np.arange(len(queries))


def next_sentence_recall(encode: Encode, first: Sequence[str], second: Sequence[str]) -> float:
    """How often the sentence that follows is the nearest of all successors by cosine: recall at 1.

    Args:
      encode: maps n strings to an array `[n, dim]`.
      first: n sentences, the queries.
      second: the sentence that follows each of them; all n are the candidates of every query.

    Returns:
      The share of queries, 0 to 1, whose own successor has the largest cosine. With t candidates
      tied for the largest cosine (within 1e-6), a query whose successor is among them counts 1 / t.

    Raises:
      ValueError: if there are no pairs or the lists differ in length.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"need as many first as second sentences, got {len(first)}, {len(second)}")
    queries, candidates = (unit64(encode(list(texts))) for texts in (first, second))
    similarity = queries @ candidates.T
    best = similarity.max(axis=1, keepdims=True)
    tied = np.isclose(similarity, best, rtol=0.0, atol=1e-6)
    hits = np.diagonal(tied) / tied.sum(axis=1)
    return float(hits.mean())


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
