"""The vectors of an index: codes of few bytes in an index of the package usearch."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import sync
from official_cmlm.vectors.nearest import top, unit

ADVICE = "build and save the index again"
FILE = "vectors.usearch"
# Neighbours of a vector in a graph, candidates while the graph is built, and candidates while it is
# searched. If a graph of a million vectors is built with 64 candidates, recall at 10 is only 0.94,
# even if searches look at 512.
_CONNECTIVITY, _BUILT, _LOOKED_AT = 16, 160, 96
# An exact search reads all vectors, so its graph has the fewest edges that usearch takes.
_LEAST_CONNECTIVITY, _LEAST_BUILT = 2, 1
# At most so many vectors decide the scale of codes; of more vectors, at least half as many do.
_SAMPLED = 1 << 16
# Vectors that are decoded at a time to compare them with queries.
_DECODED = 1 << 15
# Mean absolute value of a standard normal variable. The dimensions of a unit vector, multiplied by
# the root of their number, have about this mean.
_MEAN_SIGN = np.float32((2 / np.pi) ** 0.5)


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of codes for usearch.

    Attributes:
      kind: usearch's name of the type.
      metric: usearch's name of the distance between codes.
      oversample: candidates for each wanted neighbour; the unrounded query decides their order.
    """

    kind: str
    metric: str
    oversample: int


FORMS = {
    "float32": Form("f32", "ip", 1),
    "float16": Form("f16", "ip", 1),
    "int8": Form("i8", "ip", 2),
    "bits": Form("b1", "hamming", 16),
}


@dataclasses.dataclass(frozen=True)
class Codes:
    """Unit vectors in fewer bytes.

    Attributes:
      precision: a key of `FORMS`.
      width: dimensions of the vectors.
      scale: for `int8`: the code of a value is the value times `scale`, rounded.
    """

    precision: str
    width: int
    scale: float = 1.0

    @classmethod
    def fit(cls, precision: str, vectors: np.ndarray) -> "Codes":
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
    def form(self) -> Form:
        """The form of the precision."""
        return FORMS[self.precision]

    @property
    def columns(self) -> int:
        """Dimensions of a vector for usearch: whole bytes of bits."""
        return -(-self.width // 8) * 8 if self.precision == "bits" else self.width

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the codes of unit vectors, a row each."""
        if self.precision == "bits":
            return np.packbits(vectors > 0, axis=1)
        if self.precision == "int8":
            return np.clip(np.rint(vectors * np.float32(self.scale)), -127, 127).astype(np.int8)
        return np.asarray(vectors, self.precision)

    def encode_queries(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the codes of unit queries, for int8 with a scale for each query.

        The scale of a query does not change the order of its results.
        """
        if self.precision != "int8":
            return self.encode(vectors)
        largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-6)
        return np.rint(vectors * (np.float32(127) / largest)).astype(np.int8)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Returns the vectors of codes, float32 `[n, width]`."""
        if self.precision == "bits":
            signs = np.unpackbits(codes, axis=1, count=self.width).astype(np.float32) * 2 - 1
            return signs / (_MEAN_SIGN * np.float32(self.width**0.5))
        if self.precision == "int8":
            return unit(codes.astype(np.float32), in_place=True)
        return np.asarray(codes, np.float32)


class Vectors:
    """Rows of unit vectors, of which usearch finds the nearest; a vector's key is its row.

    Attributes:
      codes: how vectors become codes.
      approximate: whether a search follows a graph (HNSW), which reads few vectors and misses some
        neighbours; otherwise it reads all.
    """

    def __init__(self, codes: Codes, approximate: bool, index: Any = None) -> None:
        """Takes an index of usearch, which may be mapped from a file; None makes an empty one."""
        from usearch.index import Index

        self.codes, self.approximate = codes, approximate
        self._is_mapped = index is not None
        self._index = index or Index(
            ndim=codes.columns,
            metric=codes.form.metric,
            dtype=codes.form.kind,
            connectivity=_CONNECTIVITY if approximate else _LEAST_CONNECTIVITY,
        )
        # Calls from several threads would share usearch's buffers.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, vectors: np.ndarray) -> None:
        """Appends unit vectors, float32 `[n, width]`."""
        self._copy_mapped()
        self._index.expansion_add = _BUILT if self.approximate else _LEAST_BUILT
        keys = np.arange(len(self), len(self) + len(vectors), dtype=np.uint64)
        # With several threads, some vectors that nearly equal others are lost, different vectors in
        # each run.
        self._index.add(keys, self.codes.encode(vectors), threads=1)

    def remove(self, rows: np.ndarray) -> None:
        """Removes rows, int64; the rows after them move up."""
        self._copy_mapped()
        left = np.delete(np.arange(len(self)), rows)
        self._index.remove(rows)
        first = len(left) - int((left != np.arange(len(left))).sum())
        self._index.rename(left[first:], np.arange(first, len(left)))

    def _copy_mapped(self) -> None:
        """Copies an index that is mapped from its file, because such an index cannot be changed."""
        if self._is_mapped:
            # The copy is made from the open file, as its path may be another index's by now.
            self._index, self._is_mapped = self._index.copy(), False

    def find(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Returns candidates for the k nearest rows of each unit query, int64 `[n, up to k]`.

        -1 stands where a graph has found fewer.
        """
        with self._lock:
            # A search looks at no fewer candidates than are asked for.
            self._index.expansion_search = max(_LOOKED_AT, k)
            codes, is_exact = self.codes.encode_queries(queries), not self.approximate
            matches = self._index.search(codes, min(k, len(self)), exact=is_exact)
        rows = np.atleast_2d(matches.keys).astype(np.int64)
        counts = np.atleast_1d(getattr(matches, "counts", rows.shape[1]))
        return np.where(np.arange(rows.shape[1]) < counts[:, np.newaxis], rows, -1)

    def compare(
        self, queries: np.ndarray, rows: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the nearest of some rows, int64, as `rescore` does; compares queries with all."""
        best = [np.empty([len(queries), 0], np.int64)]
        for start in range(0, len(rows), _DECODED):
            part = rows[start : start + _DECODED]
            best.append(part[top(queries @ self.read(part).T, min(k, len(part)))])
        return self.rescore(queries, np.hstack(best), k)

    def rescore(
        self, queries: np.ndarray, candidates: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Orders each unit query's candidates by the products of the query and their vectors.

        Args:
          queries: float32 `[n, width]`.
          candidates: int64 `[n, c]`, rows; -1 where there is none.
          k: number of the best candidates to keep.

        Returns:
          (rows int64 `[n, k]`, products float32 `[n, k]`), best first, ties by row; if there are
          fewer than k, the rest of both is -1.
        """
        rows = np.full([len(queries), k], -1, np.int64)
        scores = np.full([len(queries), k], -1, np.float32)
        for i, candidate in enumerate(candidates):
            candidate = np.sort(candidate[candidate >= 0])
            products = self.read(candidate) @ queries[i]
            best = np.argsort(-products, kind="stable")[:k]
            rows[i, : len(best)], scores[i, : len(best)] = candidate[best], products[best]
        return rows, scores

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Returns the vectors of rows, float32 `[n, width]`."""
        if not len(rows):
            return np.empty([0, self.codes.width], np.float32)
        with self._lock:
            codes = np.asarray(self._index.get(rows.astype(np.uint64)))
        return self.codes.decode(codes)

    def save(self, folder: Path) -> None:
        """Writes the file."""
        self._index.save(str(folder / FILE))
        sync(folder / FILE)

    @classmethod
    def load(
        cls, folder: Path, codes: Codes, approximate: bool, count: int, mapped: bool
    ) -> "Vectors":
        """Reads or maps the file; raises `UserError` if it is damaged or has not `count` rows."""
        from usearch.index import Index

        path = folder / FILE
        with guard_reading(path, ADVICE):
            index = Index.restore(str(path), view=mapped)
        if (
            index is None
            or (index.ndim, len(index)) != (codes.columns, count)
            or str(index.dtype).rpartition(".")[2].lower() != codes.form.kind
            or not np.all(index.contains(np.arange(count, dtype=np.uint64)))
        ):
            raise UserError(f"{path}: does not belong to the index; {ADVICE}")
        return cls(codes, approximate, index)
