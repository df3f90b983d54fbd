"""Embeddings in fewer bytes: one byte, or one bit, a dimension. Pure NumPy.

The forms are those of sentence-transformers' `quantize_embeddings` (sentence_transformers.util,
version 6): `int8` divides each dimension's range, as calibration vectors have it, into 255 steps;
`ubinary` keeps the signs. So codes of either library can be searched by the other one.
"""

import numpy as np

# Steps between the ends of a dimension's range; the codes are 0 to 255, minus 128.
_STEPS = 255


def ranges_of(vectors: np.ndarray) -> np.ndarray:
    """Returns the smallest and the largest value of each dimension, for `to_int8`.

    Args:
      vectors: float `[n, dim]`, the calibration: thousands of vectors of typical texts.

    Returns:
      float32 `[2, dim]`: minima and maxima.

    Raises:
      ValueError: for fewer than two vectors, whose range is a point, or values that are not finite.
    """
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(
            f"ranges need at least two vectors [n, dim], got an array of shape {vectors.shape}"
        )
    found = np.stack([vectors.min(axis=0), vectors.max(axis=0)]).astype(np.float32)
    _check_ranges(found, vectors.shape[1])
    return found


def to_int8(vectors: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Encodes each value as a byte: the number of the step that holds it, minus 128.

    Args:
      vectors: float `[n, dim]`.
      ranges: float32 `[2, dim]` of `ranges_of`; values outside get the code of the nearest end.

    Returns:
      int8 `[n, dim]`.

    Raises:
      ValueError: if `ranges` do not belong to vectors of this width.
    """
    vectors = np.asarray(vectors, np.float32)
    starts, steps = _starts_and_steps(ranges, vectors.shape[-1])
    codes = np.floor((vectors - starts) / steps)
    return (np.clip(codes, 0, _STEPS, out=codes) - 128).astype(np.int8)


def from_int8(codes: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Decodes codes to the middle of their steps: float32 `[n, dim]`, at most half a step off.

    Args:
      codes: int8 `[n, dim]` of `to_int8`.
      ranges: the ranges that they were made with, float32 `[2, dim]`.

    Raises:
      ValueError: as `to_int8`.
    """
    starts, steps = _starts_and_steps(ranges, codes.shape[-1])
    # A constant dimension is decoded to its value.
    constant = np.asarray(ranges[1]) == ranges[0]
    offsets = starts + np.where(constant, np.float32(128), np.float32(128.5)) * steps
    return codes.astype(np.float32) * steps + offsets


def to_ubinary(vectors: np.ndarray) -> np.ndarray:
    """Keeps the signs: a bit a dimension, 1 above 0, uint8 `[n, ceil(dim / 8)]`, first bit highest.

    Args:
      vectors: float `[n, dim]`.
    """
    return np.packbits(np.asarray(vectors) > 0, axis=-1)


def _starts_and_steps(ranges: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    ranges = np.asarray(ranges, np.float32)
    _check_ranges(ranges, width)
    steps = (ranges[1] - ranges[0]) / np.float32(_STEPS)
    return ranges[0], np.where(steps == 0, np.float32(1), steps)


def _check_ranges(ranges: np.ndarray, width: int) -> None:
    if ranges.shape != (2, width):
        raise ValueError(f"ranges of shape {ranges.shape}, vectors of width {width}: give [2, dim]")
    if not np.isfinite(ranges).all() or (ranges[0] > ranges[1]).any():
        raise ValueError("ranges must be finite, and no minimum above its maximum")
