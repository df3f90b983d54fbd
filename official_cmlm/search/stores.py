"""How an index keeps its vectors: rows of an array, or a graph of the package usearch."""

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, read_array, refuse_special, sync, write_array
from official_cmlm.search.growing import GrowingArray
from official_cmlm.vectors.nearest import top, unit

ADVICE = "build and save the index again"
# Bytes of one block of similarities.
_BLOCK_BYTES = 1 << 27
# At most so many vectors decide the scale of codes; of more vectors, at least half as many do.
_SAMPLED = 1 << 16
# Rows that are written at a time, and vectors that are added to a graph before waiting queries run.
_WRITTEN, _INSERTED = 1 << 12, 1 << 10
# Neighbours of a vector in a graph, candidates while the graph is built, and candidates while it is
# searched. If a graph of a million vectors is built with 64 candidates, recall at 10 is only 0.94,
# even if searches look at 512.
_CONNECTIVITY, _BUILT, _LOOKED_AT = 16, 160, 96
# Mean absolute value of a standard normal variable. The dimensions of a unit vector, multiplied by
# the root of their number, have about this mean.
_MEAN_SIGN = np.float32((2 / np.pi) ** 0.5)


@dataclasses.dataclass(frozen=True)
class Codes:
    """Unit vectors in fewer bytes.

    Attributes:
      precision: `float32`, `float16`, `int8` or `bits`.
      width: dimensions of the vectors.
      scale: for `int8`: the code of a value is the value times `scale`, rounded.
    """

    precision: str
    width: int
    scale: float = 1.0

    @classmethod
    def of(cls, precision: str, vectors: np.ndarray) -> "Codes":
        """Returns codes with a scale for unit vectors; for int8, one value in 10,000 is clipped.

        If the largest value were not clipped, the steps would be a third wider, and more neighbours
        would be missed.
        """
        scale = 1.0
        if precision == "int8":
            sample = np.abs(vectors[:: -(-len(vectors) // _SAMPLED)])
            scale = 127.0 / max(float(np.quantile(sample, 0.9999)), 1e-6)
        return cls(precision, vectors.shape[1], scale)

    @property
    def form(self) -> "Form":
        """The form of the precision."""
        return FORMS[self.precision]

    @property
    def columns(self) -> int:
        """Columns of an array of codes."""
        return -(-self.width // 8) if self.precision == "bits" else self.width

    def encoded(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the codes of unit vectors, `[n, columns]`."""
        if self.precision == "bits":
            return np.packbits(vectors > 0, axis=1)
        if self.precision == "int8":
            return np.clip(np.rint(vectors * np.float32(self.scale)), -127, 127).astype(np.int8)
        return np.asarray(vectors, self.form.dtype)

    def queries(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the codes of unit queries, for int8 with a scale for each query.

        The scale of a query does not change the order of its results.
        """
        if self.precision != "int8":
            return self.encoded(vectors)
        largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-6)
        return np.rint(vectors * (np.float32(127) / largest)).astype(np.int8)

    def decoded(self, codes: np.ndarray) -> np.ndarray:
        """Returns the vectors of codes, float32 `[n, width]`."""
        if self.precision == "bits":
            signs = np.unpackbits(codes, axis=1, count=self.width).astype(np.float32) * 2 - 1
            return signs / (_MEAN_SIGN * np.float32(self.width**0.5))
        if self.precision == "int8":
            return unit(codes.astype(np.float32), in_place=True)
        return np.asarray(codes, np.float32)


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of codes, for NumPy and usearch.

    Attributes:
      dtype: NumPy's type of the codes.
      kind: usearch's name of the type.
      metric: usearch's name of the distance between codes.
      oversample: candidates for each wanted neighbour; the unrounded query decides their order.
    """

    dtype: type[np.generic]
    kind: str
    metric: str
    oversample: int


FORMS = {
    "float32": Form(np.float32, "f32", "ip", 1),
    "float16": Form(np.float16, "f16", "ip", 1),
    "int8": Form(np.int8, "i8", "ip", 2),
    "bits": Form(np.uint8, "b1", "hamming", 16),
}


class Rows:
    """Codes as rows of an array, all of which a search reads; a mapped file is not copied."""

    file = "vectors.npy"

    def __init__(self, codes: Codes, rows: np.ndarray | None = None) -> None:
        """Takes the array; None makes an empty array."""
        self.codes = codes
        if rows is None:
            rows = np.empty([0, codes.columns], codes.form.dtype)
        self._rows = GrowingArray(rows)

    def reserve(self, count: int) -> None:
        """Makes room for `count` rows in total, so that adding them copies nothing."""
        self._rows.reserve(count)

    def add(self, vectors: np.ndarray) -> None:
        """Appends unit vectors, float32 `[n, width]`."""
        self._rows.append(self.codes.encoded(vectors))

    def candidates(self, queries: np.ndarray, k: int, count: int) -> np.ndarray:
        """Returns the k rows nearest to each unit query, int64 `[n, k]`, of the first `count`."""
        return self._nearest(queries, self._rows.rows[:count], k)

    def nearest_of(self, queries: np.ndarray, k: int, rows: np.ndarray) -> np.ndarray:
        """Returns the k of `rows`, int64, that are nearest to each unit query, int64 `[n, k]`."""
        return rows[self._nearest(queries, self._rows.rows[rows], k)]

    def _nearest(self, queries: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
        found = np.empty([len(queries), k], np.int64)
        given = self.codes.queries(queries)
        step = max(1, _BLOCK_BYTES // (8 * len(codes)))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            found[part] = top(_similarities(given[part], codes), k)
        return found

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the vectors of rows, float32 `[n, width]`."""
        return self.codes.decoded(self._rows.rows[rows])

    def save(self, folder: Path, kept: np.ndarray) -> None:
        """Writes the file with the rows `kept`, int64 `[n]`, a few at a time to save memory."""
        with atomic_write(folder / self.file) as file:
            rows = self._rows.rows
            header = {
                "descr": np.lib.format.dtype_to_descr(rows.dtype),
                "fortran_order": False,
                "shape": (len(kept), rows.shape[1]),
            }
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, len(kept), _WRITTEN):
                file.write(rows[kept[start : start + _WRITTEN]].tobytes())

    @classmethod
    def load(cls, folder: Path, codes: Codes, count: int, mapped: bool) -> "Rows":
        """Reads the file; raises `UserError` if the array has a wrong type or shape."""
        rows = read_array(folder / cls.file, ADVICE, mapped)
        if rows.dtype != codes.form.dtype or rows.shape != (count, codes.columns):
            raise UserError(f"{folder / cls.file}: is {rows.dtype} {list(rows.shape)}; {ADVICE}")
        return cls(codes, rows)


def _similarities(queries: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Returns similarities, larger for nearer codes, `[queries, codes]`."""
    if codes.dtype == np.float32:
        return queries @ codes.T
    import numkong

    if codes.dtype == np.uint8:
        return -np.asarray(numkong.cdist(queries, codes, metric="hamming", dtype="uint1"))
    return np.asarray(numkong.cdist(queries, codes, metric="dot"))


class Graph:
    """Codes in a graph (HNSW); a search reads a small part of it and misses a few neighbours."""

    file = "graph.usearch"
    _keys_file = "keys.npy"

    def __init__(self, codes: Codes, graph: Any = None, keys: np.ndarray | None = None) -> None:
        """Takes usearch's graph and the key of each row, ascending; None makes empty ones."""
        from usearch.index import Index

        self.codes = codes
        self._graph = graph or Index(
            ndim=codes.width,
            metric=codes.form.metric,
            dtype=codes.form.kind,
            connectivity=_CONNECTIVITY,
            expansion_add=_BUILT,
        )
        self._keys = GrowingArray(np.empty([0], np.int64) if keys is None else keys)
        self._graph.expansion_search = _LOOKED_AT
        self._is_viewed = False
        # A graph that grows may move in memory, so no search may run meanwhile.
        self._lock = threading.Lock()

    def reserve(self, count: int) -> None:
        """Does nothing: a graph reserves as it grows."""
        del count

    def add(self, vectors: np.ndarray) -> None:
        """Appends unit vectors, float32 `[n, width]`, in parts; queries can run between parts."""
        self._own()
        keys = self._keys.rows
        first = int(keys[-1]) + 1 if len(keys) else 0
        new = np.arange(first, first + len(vectors))
        for start in range(0, len(new), _INSERTED):
            part = slice(start, start + _INSERTED)
            codes = self.codes.encoded(vectors[part])
            # With several threads, some texts that nearly equal others are lost, different texts in
            # each run.
            with self._lock:
                self._graph.add(new[part].astype(np.uint64), codes, threads=1)
        self._keys.append(new)

    def _own(self) -> None:
        """Copies a graph that is mapped from its file, because such a graph cannot be changed."""
        if self._is_viewed:
            with self._lock:
                # The copy is made from the open file, as its path may be another index's by now.
                self._graph = self._graph.copy()
                self._graph.expansion_search = _LOOKED_AT
                self._is_viewed = False

    def candidates(self, queries: np.ndarray, k: int, count: int) -> np.ndarray:
        """Finds candidates as `Rows` does; if fewer are found, the rest of the row is -1."""
        keys = self._keys.rows[:count]
        with self._lock:
            # A search looks at no fewer candidates than are asked for.
            self._graph.expansion_search = max(_LOOKED_AT, k)
            matches = self._graph.search(self.codes.queries(queries), min(k, len(self._graph)))
        found = np.full([len(queries), k], -1, np.int64)
        names = np.atleast_2d(matches.keys).astype(np.int64)
        counts = np.atleast_1d(getattr(matches, "counts", names.shape[1]))
        places = np.minimum(np.searchsorted(keys, names), len(keys) - 1)
        is_there = keys[places] == names
        is_there &= np.arange(names.shape[1]) < counts[:, np.newaxis]
        found[:, : names.shape[1]] = np.where(is_there, places, -1)
        return found

    def nearest_of(self, queries: np.ndarray, k: int, rows: np.ndarray) -> np.ndarray:
        """Finds the nearest of `rows` as `Rows` does, by a comparison with all of them."""
        return rows[top(queries @ self.vectors(rows).T, k)]

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Returns the vectors of rows, float32 `[n, width]`."""
        if not len(rows):
            return np.empty([0, self.codes.width], np.float32)
        with self._lock:
            found = self._graph.get(self._keys.rows[rows].astype(np.uint64))
        found = np.stack([np.asarray(one).reshape(-1) for one in found])
        return self.codes.decoded(found.view(self.codes.form.dtype))

    def save(self, folder: Path, kept: np.ndarray) -> None:
        """Writes the files with the rows that are kept, int64 `[n]`."""
        keys = self._keys.rows
        gone = np.delete(keys, kept)
        graph = self._graph
        if len(gone):
            # Readers may still use the removed vectors, so they are removed from a copy.
            with self._lock:
                graph = graph.copy()
            graph.remove(gone.astype(np.uint64), compact=True)
        with self._lock:
            graph.save(str(folder / self.file))
        sync(folder / self.file)
        with atomic_write(folder / self._keys_file) as file:
            write_array(file, keys[kept])

    @classmethod
    def load(cls, folder: Path, codes: Codes, count: int, mapped: bool) -> "Graph":
        """Reads the files; raises `UserError` if they are damaged."""
        from usearch.index import Index

        refuse_special(folder / cls.file)
        keys = read_array(folder / cls._keys_file, ADVICE, mapped)
        rising = keys.dtype == np.int64 and keys.shape == (count,) and (np.diff(keys) > 0).all()
        try:
            graph = Index.restore(str(folder / cls.file), view=mapped)
        except (RuntimeError, ValueError, OSError) as error:
            raise UserError(f"{folder / cls.file}: damaged ({error}); {ADVICE}") from None
        if (
            graph is None
            or not rising
            or (graph.ndim, len(graph)) != (codes.width, count)
            or str(graph.dtype).rpartition(".")[2].lower() != codes.form.kind
            or not np.all(graph.contains(np.asarray(keys, np.uint64)))
        ):
            files = f"{cls.file} and {cls._keys_file}"
            raise UserError(f"{folder}: its {files} do not belong to the index; {ADVICE}")
        made = cls(codes, graph, keys)
        made._is_viewed = mapped
        return made


Store = Rows | Graph


def rescored(
    queries: np.ndarray, chosen: np.ndarray, vectors_of: Callable[[np.ndarray], np.ndarray], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Orders each unit query's candidates by the products of the query and their vectors.

    Args:
      queries: float32 `[n, width]`.
      chosen: int64 `[n, c]`, rows; -1 where there is none.
      vectors_of: rows `[c]` -> float32 `[c, width]`.
      k: number of the best candidates to keep.

    Returns:
      (rows int64 `[n, k]`, products float32 `[n, k]`), best first; if there are fewer than k, the
      rest of both is -1.
    """
    rows = np.full([len(queries), k], -1, np.int64)
    scores = np.full([len(queries), k], -1, np.float32)
    for i, candidates in enumerate(chosen):
        candidates = np.sort(candidates[candidates >= 0])
        if len(candidates):
            products = vectors_of(candidates) @ queries[i]
            best = np.argsort(-products, kind="stable")[:k]
            rows[i, : len(best)], scores[i, : len(best)] = candidates[best], products[best]
    return rows, scores
