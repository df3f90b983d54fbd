"""How an index keeps its vectors: one class a method, all with the interface `Store`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.nearest import CellIndex, nearest, nearest_bits, nearest_int8, rescored
from official_cmlm.quantization import from_int8, ranges_of, to_int8, to_ubinary
from official_cmlm.search.growing import GrowingArray

# Vectors of which the ranges of codes are learned.
_CALIBRATION = 100_000


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of searches by some methods.

    Attributes:
      oversample: of `binary`: so many times the wanted neighbours are chosen by their signs and put
        into order by their int8 codes. More find more.
      probed: of `faiss`: cells that a query looks into. More find more.
    """

    oversample: int = 64
    probed: int = 32


class Store(Protocol):
    """Unit vectors in some form, in the order in which they were added."""

    def __len__(self) -> int:
        """Returns the number of vectors."""

    @property
    def width(self) -> int:
        """Their dimensions."""

    def add(self, vectors: np.ndarray) -> None:
        """Appends unit vectors, float32 `[n, dim]`."""

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (indices int64, cosines float32), both `[n, k]`; -1 fills up fewer than k."""

    def vectors(self) -> np.ndarray:
        """Returns all vectors, as they are kept: float32 `[n, dim]`."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays to save, by name; `load` takes them."""


class Float32Store:
    """The vectors themselves: 4 bytes a dimension, exact."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._rows = GrowingArray(vectors)

    @classmethod
    def build(cls, vectors: np.ndarray, options: Options) -> "Float32Store":
        del options
        return cls(vectors)

    @classmethod
    def load(cls, arrays: Mapping[str, np.ndarray], options: Options) -> "Float32Store":
        del options
        return cls(_two_dimensional(arrays, "vectors", np.float32))

    def __len__(self) -> int:
        return len(self._rows.rows)

    @property
    def width(self) -> int:
        return self._rows.rows.shape[1]

    def add(self, vectors: np.ndarray) -> None:
        self._rows.append(vectors)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return nearest(queries, self._rows.rows, k)

    def vectors(self) -> np.ndarray:
        return self._rows.rows

    def arrays(self) -> dict[str, np.ndarray]:
        return {"vectors": self._rows.rows}


class Int8Store:
    """A byte a dimension; the search is exact among the vectors that the codes stand for."""

    def __init__(self, codes: np.ndarray, ranges: np.ndarray) -> None:
        self._codes, self._ranges = GrowingArray(codes), ranges

    @classmethod
    def build(cls, vectors: np.ndarray, options: Options) -> "Int8Store":
        del options
        if len(vectors) < 2:
            raise UserError("int8 codes need the ranges of two texts or more; use method=float32")
        # Evenly spread, as neighbours may be alike.
        step = -(-len(vectors) // _CALIBRATION)
        ranges = ranges_of(vectors[::step])
        return cls(to_int8(vectors, ranges), ranges)

    @classmethod
    def load(cls, arrays: Mapping[str, np.ndarray], options: Options) -> "Int8Store":
        del options
        codes = _two_dimensional(arrays, "codes", np.int8)
        ranges = _two_dimensional(arrays, "ranges", np.float32)
        if ranges.shape != (2, codes.shape[1]) or not np.isfinite(ranges).all():
            raise UserError("its ranges do not belong to its codes")
        if (ranges[0] > ranges[1]).any():
            raise UserError("its ranges have minima above their maxima")
        return cls(codes, ranges)

    def __len__(self) -> int:
        return len(self._codes.rows)

    @property
    def width(self) -> int:
        return self._codes.rows.shape[1]

    def add(self, vectors: np.ndarray) -> None:
        self._codes.append(to_int8(vectors, self._ranges))

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return nearest_int8(queries, self._codes.rows, self._ranges, k)

    def vectors(self) -> np.ndarray:
        return from_int8(self._codes.rows, self._ranges)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"codes": self._codes.rows, "ranges": self._ranges}


class BinaryStore(Int8Store):
    """A bit a dimension chooses candidates; a byte a dimension puts these into order."""

    def __init__(
        self, codes: np.ndarray, ranges: np.ndarray, bits: np.ndarray, options: Options
    ) -> None:
        super().__init__(codes, ranges)
        self._bits, self._options = GrowingArray(bits), options

    @classmethod
    def build(cls, vectors: np.ndarray, options: Options) -> "BinaryStore":
        codes = Int8Store.build(vectors, options).arrays()
        return cls(**codes, bits=to_ubinary(vectors), options=options)

    @classmethod
    def load(cls, arrays: Mapping[str, np.ndarray], options: Options) -> "BinaryStore":
        codes = Int8Store.load(arrays, options)
        bits = _two_dimensional(arrays, "bits", np.uint8)
        if bits.shape != (len(codes), -(-codes.width // 8)):
            raise UserError("its bits do not belong to its codes")
        # A search reads all bits, of the codes only those of candidates.
        return cls(**codes.arrays(), bits=np.array(bits), options=options)

    def add(self, vectors: np.ndarray) -> None:
        self._bits.append(to_ubinary(vectors))
        super().add(vectors)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        chosen, _ = nearest_bits(
            queries, self._bits.rows, min(k * self._options.oversample, len(self))
        )
        return rescored(queries, chosen, self._some, k)

    def _some(self, indices: np.ndarray) -> np.ndarray:
        """Returns the vectors of some rows: float32 `[len(indices), dim]`."""
        return from_int8(self._codes.rows[indices], self._ranges)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"bits": self._bits.rows} | super().arrays()


class CellStore(CellIndex):
    """The vectors themselves in cells, of which a query looks into the nearest; approximate."""

    @classmethod
    def build(cls, vectors: np.ndarray, options: Options) -> "CellStore":
        return cls(vectors, options.probed)

    @classmethod
    def load(cls, arrays: Mapping[str, np.ndarray], options: Options) -> "CellStore":
        return cls.from_bytes(np.array(arrays["cells"], np.uint8), options.probed)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"cells": self.to_bytes()}


STORES: dict[str, type[Float32Store | Int8Store | BinaryStore | CellStore]] = {
    "float32": Float32Store,
    "int8": Int8Store,
    "binary": BinaryStore,
    "faiss": CellStore,
}
# The files of each.
FILES = {
    "float32": ("vectors",),
    "int8": ("codes", "ranges"),
    "binary": ("bits", "codes", "ranges"),
    "faiss": ("cells",),
}


def _two_dimensional(arrays: Mapping[str, np.ndarray], name: str, kind: Callable) -> np.ndarray:
    found = arrays[name]
    if found.ndim != 2 or found.dtype != kind:
        raise UserError(f"{name}.npy is {found.dtype} of {found.ndim} dimensions")
    return found
