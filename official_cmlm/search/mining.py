"""Paraphrases, duplicates and clusters among vectors.

All functions take unit vectors, as `SentenceEncoder.encode(texts, normalize_embeddings=True)` and
`Index.vectors` return them, and compare by cosine. All but `cluster` compute exact results, in
blocks of similarities; memory holds a block and the result.
"""

from collections.abc import Iterator

import numpy as np

from official_cmlm.vectors.nearest import BLOCK_BYTES, unit

# k-means learns from batches above the first number of vectors, and has one thread up to the
# second.
_BATCHED, _ONE_THREAD = 50_000, 5000
# A block is divided into so many parts, and pairs are made of one part at a time, because a pair
# takes some ten times the memory of its cosine.
_PARTS = 32


def paraphrases(
    vectors: np.ndarray,
    threshold: float = 0.8,
    most: int = 100_000,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs of vectors that are nearest to each other, best first.

    All pairs are compared, so the time grows with the square of the number of vectors.

    Args:
      vectors: unit vectors, float `[n, dim]`.
      threshold: least cosine of a pair, -1 to 1.
      most: largest number of pairs to return, at least 1; memory grows with it.
      block_bytes: memory of a block of similarities; the pairs in it take about as much again.

    Returns:
      (pairs int64 `[p, 2]`, the lower row first; cosines float32 `[p]`); ties are ordered by row.

    Raises:
      ValueError: for vectors of another shape or length, or a number out of range.
    """
    vectors = _checked(vectors)
    _check_threshold(threshold)
    if most < 1:
        raise ValueError(f"most must be at least 1, got {most}")
    pairs, scores = np.empty([0, 2], np.int64), np.empty([0], np.float32)
    full = False
    for first, second, cosines in _pairs(vectors, block_bytes):
        # Rows come in order: once there are enough, later pairs of the same cosine come last.
        near = np.flatnonzero(cosines > threshold if full else cosines >= threshold)
        found = np.stack([first + near // cosines.shape[1], second + near % cosines.shape[1]], 1)
        pairs = np.concatenate([pairs, found])
        scores = np.concatenate([scores, cosines.ravel()[near]])
        if len(pairs) > most:
            kept = _best(pairs, scores, most)
            pairs, scores = pairs[kept], scores[kept]
            threshold, full = float(scores[-1]), True
    kept = _best(pairs, scores, most)
    return pairs[kept], scores[kept]


def duplicates(
    vectors: np.ndarray, threshold: float = 0.95, block_bytes: int = BLOCK_BYTES
) -> np.ndarray:
    """Finds the earlier vector that each vector repeats.

    In the order of rows, a row is kept unless its cosine with an earlier kept row is `threshold` or
    more. So no two kept rows are that near, and each row that is not kept is that near to a kept
    row.

    Args:
      vectors: unit vectors, float `[n, dim]`; vectors that should rather be kept come first.
      threshold: least cosine of a duplicate, -1 to 1.
      block_bytes: memory of a block of similarities.

    Returns:
      int64 `[n]`: the nearest kept row before it; its own number for a row that is kept. So
      `np.flatnonzero(found == np.arange(n))` are the rows to keep.

    Raises:
      ValueError: for vectors of another shape or length, or a threshold out of range.
    """
    vectors = _checked(vectors)
    _check_threshold(threshold)
    representative = np.arange(len(vectors))
    kept = np.empty_like(vectors)
    kept_rows = np.empty([len(vectors)], np.int64)
    count, step = 0, _step(len(vectors), block_bytes)
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step]
        # The block is compared with the rows that were kept before it, and then with each row of
        # its own that is kept.
        nearest = np.zeros([len(block)], np.int64)
        score = np.full([len(block)], -np.inf, np.float32)
        if count:
            similarity = block @ kept[:count].T
            best = similarity.argmax(axis=1)
            nearest, score = kept_rows[best], similarity.max(axis=1)
        within = block @ block.T
        for i in range(len(block)):
            if score[i] >= threshold:
                representative[start + i] = nearest[i]
                continue
            kept[count], kept_rows[count] = block[i], start + i
            count += 1
            nearer = within[i] > score
            nearer[: i + 1] = False
            score[nearer], nearest[nearer] = within[i][nearer], start + i
    return representative


def cluster(vectors: np.ndarray, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Divides vectors among `count` clusters, by scikit-learn's k-means.

    Args:
      vectors: unit vectors, float `[n, dim]`.
      count: clusters, 1 to n.
      seed: seed of the first centres. Equal seeds give equal clusters on equal machines.

    Returns:
      (clusters int64 `[n]`, unit centres float32 `[count, dim]`).

    Raises:
      ValueError: if count is not in 1 … n, or for vectors of another shape or length.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    vectors = _checked(vectors)
    if not 1 <= count <= len(vectors):
        raise ValueError(f"count must be 1 to {len(vectors)} (the vectors), got {count}")
    kind = KMeans if len(vectors) <= _BATCHED else MiniBatchKMeans
    # Threads that wait for each other cost more than they save among few vectors.
    threads = 1 if len(vectors) <= _ONE_THREAD else None
    with threadpool_limits(threads):
        found = kind(count, random_state=seed, n_init=1 if count > 100 else 4).fit(vectors)
    return found.labels_.astype(np.int64), unit(found.cluster_centers_)


def groups(
    vectors: np.ndarray, threshold: float = 0.75, least: int = 2, block_bytes: int = BLOCK_BYTES
) -> np.ndarray:
    """Finds groups of vectors that lie close together, by scikit-learn's DBSCAN.

    A vector with at least `least` vectors, itself among them, within the threshold holds a group
    together, so a group may be a chain whose ends are far from each other. Memory grows with the
    number of pairs within the threshold, about 100 bytes for each at its peak (counting NumPy's
    arrays).

    Args:
      vectors: unit vectors, float `[n, dim]`.
      threshold: least cosine of neighbours, -1 to 1.
      least: number of neighbours, the vector itself among them, with which a vector holds a
        group together; at least 1.
      block_bytes: memory of a block of similarities.

    Returns:
      int64 `[n]`: the group of each vector, 0 for the largest group; -1 for vectors without one.

    Raises:
      ValueError: for vectors of another shape or length, another threshold, or `least` below 1.
    """
    from scipy.sparse import coo_array
    from sklearn.cluster import DBSCAN

    vectors = _checked(vectors)
    _check_threshold(threshold)
    if least < 1:
        raise ValueError(f"least must be at least 1, got {least}")
    if not len(vectors):
        return np.empty([0], np.int64)
    count = len(vectors)
    parts = []
    for first, second, cosines in _pairs(vectors, block_bytes):
        near = np.nonzero(cosines >= threshold)
        parts.append((near[0] + first).astype(np.int32))
        parts.append((near[1] + second).astype(np.int32))
    # Each vector is its own neighbour at distance 0.
    own = np.arange(count, dtype=np.int32)
    rows = np.concatenate([*parts, own])
    columns = np.concatenate([*(parts[i ^ 1] for i in range(len(parts))), own])
    # All these pairs are neighbours. Equal distances keep DBSCAN from deciding this again, with
    # another rounding.
    distances = np.ones([len(rows)], np.float32)
    distances[-count:] = 0
    del parts
    graph = coo_array((distances, (rows, columns)), shape=(count, count)).tocsr()
    del rows, columns, distances
    labels = DBSCAN(eps=1, min_samples=least, metric="precomputed").fit(graph).labels_
    found = np.full(len(own), -1, np.int64)
    grouped = labels >= 0
    sizes = np.bincount(labels[grouped])
    place = np.empty_like(sizes)
    place[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    found[grouped] = place[labels[grouped]]
    return found


def _pairs(vectors: np.ndarray, block_bytes: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yields (first row, first column, cosines) of all pairs; -inf where the row is not lower.

    Each item is a part of a block, so small that its pairs take no more memory than the block.
    """
    step = _step(len(vectors), block_bytes)
    for start in range(0, len(vectors), step):
        # Each row is compared with the rows after it, so each pair occurs once.
        block = vectors[start : start + step] @ vectors[start:].T
        block[:, : len(block)][np.tri(len(block), dtype=bool)] = -np.inf
        rows = max(1, len(block) // _PARTS)
        for i in range(0, len(block), rows):
            yield start + i, start, block[i : i + rows]


def _best(pairs: np.ndarray, scores: np.ndarray, most: int) -> np.ndarray:
    """Returns the indices of the best pairs, best first."""
    near = np.arange(len(scores))
    if len(scores) > most:
        border = np.partition(scores, len(scores) - most)[len(scores) - most]
        near = np.flatnonzero(scores >= border)
    return near[np.lexsort([pairs[near, 1], pairs[near, 0], -scores[near]])[:most]]


def _step(count: int, block_bytes: int) -> int:
    return max(1, min(count, block_bytes // (4 * max(1, count))))


def _checked(vectors: np.ndarray) -> np.ndarray:
    vectors = np.ascontiguousarray(vectors, np.float32)
    if vectors.ndim != 2:
        raise ValueError(f"give vectors [n, dim], got an array of shape {vectors.shape}")
    lengths = np.einsum("nd,nd->n", vectors, vectors)
    if not ((np.abs(lengths - 1) < 0.05) | (lengths == 0)).all():
        raise ValueError("the vectors are not of length 1; encode with normalize_embeddings=True")
    return vectors


def _check_threshold(threshold: float) -> None:
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold must be -1 to 1, got {threshold}")
