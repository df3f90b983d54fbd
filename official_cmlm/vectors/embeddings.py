"""Operations on computed embeddings: fewer bits, fewer dimensions, similarity. NumPy alone.

The precision here is the precision of stored vectors; `SentenceEncoder.load(precision=…)` sets the
precision of the arithmetic that computes them. Codes are those of sentence-transformers'
`quantize_embeddings` (sentence_transformers.util, version 6), so that codes of either library can
be searched by the other one.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import atomic_write_text, read_object
from official_cmlm.common.validation import read_dataclass
from official_cmlm.vectors.nearest import unit

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
RANGES_NAME = "embedding_ranges.json"
# Steps between the ends of a dimension's range.
_STEPS = 255
# Rows of the second side that are compared at once where each pair needs memory of its own.
_BLOCK = 256


@dataclasses.dataclass(frozen=True)
class EmbeddingId:
    """Identifies the model and the sentence vector of embeddings; None means unknown.

    Attributes:
      pooling, sentence_vector: see `EncoderConfig`.
      weights: changes with the weights; see `EncoderDirectory.weights_digest`.
    """

    pooling: str | None = None
    sentence_vector: str | None = None
    weights: str | None = None

    def of_layer(self, layer: int) -> "EmbeddingId":
        """Returns the identity of the same vector of another layer."""
        return dataclasses.replace(self, pooling=f"{self.pooling} of layer {layer}")

    def difference(self, other: "EmbeddingId") -> str | None:
        """Returns how these vectors differ from another encoder's, as far as its fields are known.

        None means that no difference is known.
        """
        for name in ("pooling", "sentence_vector"):
            mine, its = getattr(self, name), getattr(other, name)
            if its not in (None, mine):
                return f"they are of {name} {mine or 'unknown'}, this encoder has {its}"
        if other.weights not in (None, self.weights):
            return "they are of other weights"
        return None


UNKNOWN_ID = EmbeddingId()


@dataclasses.dataclass(frozen=True, eq=False)
class Ranges:
    """The smallest and largest value of each dimension; codes of 8 bits divide it into 255 steps.

    Attributes:
      low, high: float32 `[dim]`.
      normalize: whether the embeddings had been scaled to length 1, by
        `encode(normalize_embeddings=True)`.
      origin: the encoder of the embeddings.
    """

    low: np.ndarray
    high: np.ndarray
    normalize: bool = False
    origin: EmbeddingId = UNKNOWN_ID

    def __post_init__(self) -> None:
        if self.low.ndim != 1 or not self.low.size or self.low.shape != self.high.shape:
            raise ValueError(f"ranges have shapes {self.low.shape} and {self.high.shape}")
        if not np.isfinite([self.low, self.high]).all() or (self.low > self.high).any():
            raise ValueError("ranges must be finite, and no minimum above its maximum")

    @classmethod
    def of(
        cls, embeddings: np.ndarray, normalize: bool = False, origin: EmbeddingId = UNKNOWN_ID
    ) -> "Ranges":
        """Finds the ranges of embeddings, float `[n, dim]`: thousands of typical texts.

        Raises:
          ValueError: for fewer than two vectors, whose range is a point, or values that are not
            finite.
        """
        embeddings = np.asarray(embeddings)
        if embeddings.ndim != 2 or len(embeddings) < 2:
            raise ValueError(
                f"ranges need at least two vectors [n, dim], got shape {embeddings.shape}"
            )
        ends = (embeddings.min(axis=0), embeddings.max(axis=0))
        return cls(*(end.astype(np.float32) for end in ends), normalize, origin)

    def cut(self, dimension: int, normalize: bool) -> "Ranges":
        """Returns the ranges of the first dimensions.

        Raises:
          UserError: if these ranges are of other vectors.
        """
        # Scaling after a cut changes the ranges.
        fits = dimension == len(self.low) or (dimension < len(self.low) and not normalize)
        if normalize != self.normalize or not fits:
            raise UserError(
                f"the stored ranges are of {len(self.low)} dimensions, normalize={self.normalize}; "
                f"here are {dimension}, normalize={normalize}: calibrate with these settings"
            )
        return Ranges(self.low[:dimension], self.high[:dimension], normalize, self.origin)

    def save(self, folder: Path) -> None:
        """Writes `embedding_ranges.json` into a folder."""
        values = {"normalize": self.normalize, "origin": dataclasses.asdict(self.origin)}
        # The shortest decimal number of a float32 is read again as the same float32.
        values |= {name: getattr(self, name).astype(float).tolist() for name in ("low", "high")}
        atomic_write_text(folder / RANGES_NAME, json.dumps(values) + "\n")


def read_ranges(folder: Path) -> Ranges | None:
    """Reads the ranges that are stored in a folder; None if there are none.

    Raises:
      UserError: if the file is damaged.
    """
    path = folder / RANGES_NAME
    if not path.exists():
        return None
    advice = "calibrate the encoder again"
    values = read_object(path, advice)
    with guard_reading(path, advice):
        low, high = (np.array(values[name], np.float32) for name in ("low", "high"))
        origin = read_dataclass(EmbeddingId, values.get("origin", {}), "origin")
        if type(values["normalize"]) is not bool:
            raise ValueError(f"normalize is {values['normalize']!r:.40}")
        return Ranges(low, high, values["normalize"], origin)


def quantize(embeddings: np.ndarray, precision: str, ranges: Ranges | None = None) -> np.ndarray:
    """Quantises embeddings.

    Args:
      embeddings: float `[n, dim]`.
      precision: `float32`; `uint8`, the step of the dimension's range that holds a value, 0 to
        255; `int8`, the same minus 128; `ubinary`, a bit a dimension, set for values above 0, eight
        to a byte with the first one highest; `binary`, these bytes minus 128.
      ranges: required for `int8` and `uint8`. Values beyond them count as the nearest end.

    Returns:
      float32, int8 or uint8 `[n, dim]`; binary precisions `[n, ceil(dim / 8)]`.

    Raises:
      ValueError: for another precision.
      UserError: without ranges that are required.
    """
    if precision not in PRECISIONS:
        hint = ""
        if precision == "bfloat16":
            hint = "; that of the arithmetic is an argument of SentenceEncoder.load"
        raise ValueError(
            f"precision of embeddings must be one of {', '.join(PRECISIONS)}; "
            f"got {precision!r}{hint}"
        )
    if precision == "float32":
        return embeddings.astype(np.float32, copy=False)
    if precision.endswith("binary"):
        bits = np.packbits(embeddings > 0, axis=-1)
        return bits if precision == "ubinary" else (bits ^ np.uint8(128)).view(np.int8)
    if ranges is None:
        raise UserError(
            f"precision {precision} needs the range of each dimension: call calibrate(texts) with "
            "some thousand texts of your own, and save_settings(folder) to keep it"
        )
    steps = _steps(ranges, embeddings.shape[-1])
    codes = np.floor((np.asarray(embeddings, np.float32) - ranges.low) / steps)
    np.clip(codes, 0, _STEPS, out=codes)
    return codes.astype(np.uint8) if precision == "uint8" else (codes - 128).astype(np.int8)


def dequantize(codes: np.ndarray, precision: str, ranges: Ranges | None, width: int) -> np.ndarray:
    """Decodes what `quantize` returns: bytes to the middle of their steps, bits to 1 and -1.

    Args:
      codes: `[n, columns]`.
      precision, ranges: the arguments that `quantize` was given.
      width: dimensions of the embeddings.

    Returns:
      float32 `[n, width]`.
    """
    if precision.endswith("binary"):
        bits = codes.astype(np.uint8) ^ np.uint8(128 if precision == "binary" else 0)
        return np.unpackbits(bits, axis=1, count=width) * np.float32(2) - 1
    if precision == "float32":
        return codes.astype(np.float32, copy=False)
    signed = codes.astype(np.float32) - np.float32(128 if precision == "uint8" else 0)
    # A constant dimension is decoded to its value.
    middle = np.where(ranges.low == ranges.high, np.float32(128), np.float32(128.5))
    steps = _steps(ranges, width)
    return signed * steps + (ranges.low + middle * steps)


def _steps(ranges: Ranges, width: int) -> np.ndarray:
    """Returns the step of each dimension, float32 `[width]`; 1 where all values are equal."""
    if len(ranges.low) != width:
        raise ValueError(f"ranges of {len(ranges.low)} dimensions, vectors of width {width}")
    steps = (ranges.high - ranges.low) / np.float32(_STEPS)
    return np.where(steps == 0, np.float32(1), steps)


def _distances(a: np.ndarray, b: np.ndarray, order: int) -> np.ndarray:
    """Returns the negated distances in the norm of an order, float32 `[n, m]`."""
    distances = np.empty([len(a), len(b)], np.float32)
    for row, vector in enumerate(a):
        for start in range(0, len(b), _BLOCK):
            part = vector - b[start : start + _BLOCK]
            distances[row, start : start + _BLOCK] = -np.linalg.norm(part, order, axis=-1)
    return distances


SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a, b: unit(a) @ unit(b).T,
    "dot": lambda a, b: a @ b.T,
    "euclidean": lambda a, b: _distances(a, b, 2),
    "manhattan": lambda a, b: _distances(a, b, 1),
}


def similarity(a: np.ndarray, b: np.ndarray, name: str = "cosine") -> np.ndarray:
    """Computes the similarity of each row of `a` with each of `b`.

    Args:
      a, b: float `[n, dim]` and `[m, dim]`.
      name: `cosine`, `dot`, or a negated distance: `euclidean`, `manhattan`.

    Returns:
      float32 `[n, m]`.

    Raises:
      ValueError: for an unknown name, or unless both are float arrays with rows of one width.
    """
    a, b = _comparable(a, b, name)
    return SIMILARITIES[name](a, b)


def similarity_pairwise(a: np.ndarray, b: np.ndarray, name: str = "cosine") -> np.ndarray:
    """Computes the similarity of each row of `a` with the same row of `b`: float32 `[n]`.

    Raises:
      ValueError: as `similarity`, and for different numbers of rows.
    """
    a, b = _comparable(a, b, name)
    if len(a) != len(b):
        raise ValueError(f"similarity of pairs takes as many rows, got {len(a)} and {len(b)}")
    if name in ("euclidean", "manhattan"):
        return -np.linalg.norm(a - b, 2 if name == "euclidean" else 1, axis=1)
    return np.einsum("nd,nd->n", *((unit(a), unit(b)) if name == "cosine" else (a, b)))


def _comparable(a: np.ndarray, b: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    if name not in SIMILARITIES:
        raise ValueError(f"similarity must be one of {', '.join(SIMILARITIES)}; got {name!r}")
    a, b = np.asarray(a), np.asarray(b)
    for rows in (a, b):
        if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.floating):
            raise ValueError(
                f"similarity takes float arrays [n, dim], got {rows.dtype} {list(rows.shape)}"
            )
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"similarity takes rows of one width, got {a.shape[1]} and {b.shape[1]}")
    return a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
