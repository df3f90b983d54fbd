"""Operations on computed embeddings: fewer bits, fewer dimensions, similarity. NumPy alone.

The precision here is the precision of stored vectors; `SentenceEncoder.load(precision=…)` sets the
precision of the arithmetic that computes them.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write_text, read_object
from official_cmlm.nearest import unit
from official_cmlm.quantization import ranges_of, to_int8, to_ubinary

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
RANGES_NAME = "embedding_ranges.json"
_ADVICE = "calibrate the encoder again"
# Rows of one side that are compared at once if each pair needs memory.
_BLOCK = 256


@dataclasses.dataclass(frozen=True)
class EmbeddingId:
    """Identifies the model and the sentence vector of embeddings; None means unknown.

    Attributes:
      pooling, sentence_vector: those of `EncoderConfig`.
      weights: changes with the weights; see `EncoderDirectory.weights_digest`.
    """

    pooling: str | None = None
    sentence_vector: str | None = None
    weights: str | None = None

    def of_layer(self, layer: int) -> "EmbeddingId":
        """Returns the identity of the same vector of another layer."""
        return dataclasses.replace(self, pooling=f"{self.pooling} of layer {layer}")

    def difference(self, other: "EmbeddingId") -> str | None:
        """Says how these vectors differ from another encoder's, as far as that one is known."""
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
    """The smallest and largest value of each dimension; `int8` and `uint8` divide it in 255 steps.

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

    @classmethod
    def of(
        cls, embeddings: np.ndarray, normalize: bool = False, origin: EmbeddingId = UNKNOWN_ID
    ) -> "Ranges":
        """Finds the ranges of embeddings, float `[n, dim]`.

        Raises:
          ValueError: see `quantization.ranges_of`.
        """
        return cls(*ranges_of(embeddings), normalize, origin)

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
    values = read_object(path, _ADVICE)
    try:
        low, high = (np.array(values[name], np.float32) for name in ("low", "high"))
    except (KeyError, TypeError, ValueError):
        low = high = np.zeros([0], np.float32)
    normalize, origin = values.get("normalize"), values.get("origin", {})
    ordered = low.shape == high.shape and bool((low <= high).all())
    if low.ndim != 1 or not low.size or not ordered or type(normalize) is not bool:
        raise UserError(f"{path}: not ranges of embeddings; {_ADVICE}")
    return Ranges(low, high, normalize, _origin(path, origin))


def _origin(path: Path, values: Any) -> EmbeddingId:
    known = {field.name for field in dataclasses.fields(EmbeddingId)}
    if not isinstance(values, dict) or not all(
        name in known and isinstance(value, str | None) for name, value in values.items()
    ):
        raise UserError(f"{path}: not ranges of embeddings (origin {values!r:.60}); {_ADVICE}")
    return EmbeddingId(**values)


def quantize(embeddings: np.ndarray, precision: str, ranges: Ranges | None = None) -> np.ndarray:
    """Quantises embeddings, as sentence-transformers' `quantize_embeddings` does.

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
        bits = to_ubinary(embeddings)
        return bits if precision == "ubinary" else (bits ^ np.uint8(128)).view(np.int8)
    if ranges is None:
        raise UserError(
            f"precision {precision} needs the range of each dimension: call calibrate(texts) with "
            "some thousand texts of your own, and save_settings(folder) to keep it"
        )
    codes = to_int8(embeddings, np.stack([ranges.low, ranges.high]))
    return codes if precision == "int8" else codes.view(np.uint8) ^ np.uint8(128)


def _distances(a: np.ndarray, b: np.ndarray, order: int) -> np.ndarray:
    """Returns the negated distances in the norm of an order, float32 `[n, m]`."""
    found = np.empty([len(a), len(b)], np.float32)
    for row, vector in enumerate(a):
        for start in range(0, len(b), _BLOCK):
            part = vector - b[start : start + _BLOCK]
            found[row, start : start + _BLOCK] = -np.linalg.norm(part, order, axis=-1)
    return found


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
    """Computes the similarity of each row of `a` with the same row of `b`.

    Args:
      a, b: float `[n, dim]`.
      name: see `similarity`.

    Returns:
      float32 `[n]`.

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
    for each in (a, b):
        if each.ndim != 2 or not np.issubdtype(each.dtype, np.floating):
            raise ValueError(
                f"similarity takes float arrays [n, dim], got {each.dtype} {list(each.shape)}"
            )
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"similarity takes rows of one width, got {a.shape[1]} and {b.shape[1]}")
    return a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
