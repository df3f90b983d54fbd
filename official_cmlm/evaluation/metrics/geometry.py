"""Measures of how embeddings fill their space."""

import numpy as np
from scipy.special import logsumexp

from official_cmlm.evaluation.metrics.nearest import unit, unit64

# Rows of one block of distances: 10,000 vectors take 40 MB at a time.
_ROWS = 1024


def isotropy_score(vectors: np.ndarray) -> float:
    """Isotropy score, 0 (narrow cone) to 1 (the same in all directions).

    min F(c) / max F(c) over unit vectors c, with F(c) the sum of exp(c·v) over the vectors v as
    they are, not scaled; the unit vectors are the eigenvectors of VᵀV (Mirror-BERT,
    Equation 2, after Mu and Viswanath 2018). An eigenvector has no sign, so both count. Where
    eigenvalues are equal the eigenvectors, and so the score, are not unique.

    Args:
      vectors: float `[n, dim]`.

    Raises:
      ValueError: if there are none or they are no numbers.
    """
    matrix = _checked(vectors)
    _, directions = np.linalg.eigh(matrix.T @ matrix)
    products = matrix @ directions
    # Logarithms: exp of a vector of length 800 is beyond float64.
    sums = np.concatenate([logsumexp(products, axis=0), logsumexp(-products, axis=0)])
    return float(np.exp(sums.min() - sums.max()))


def mean_vector_norm(vectors: np.ndarray) -> float:
    """Length of the mean of the vectors as they are (Mirror-BERT, Equation 3); 0 if centred.

    Args:
      vectors: float `[n, dim]`.

    Raises:
      ValueError: if there are none or they are no numbers.
    """
    return float(np.linalg.norm(_checked(vectors).mean(axis=0)))


def alignment(first: np.ndarray, second: np.ndarray) -> float:
    """Mean squared distance of positive pairs on the unit sphere, 0 to 4; less is better.

    Wang and Isola (2020), alpha = 2.

    Args:
      first, second: float `[n, dim]`; row i of both is a pair. They are scaled to length 1.

    Raises:
      ValueError: if there are none, they are no numbers or their shapes differ.
    """
    if np.shape(first) != np.shape(second):
        raise ValueError(f"need pairs, got {np.shape(first)} and {np.shape(second)}")
    difference = unit64(_checked(first)) - unit64(_checked(second))
    return float(np.mean(np.sum(difference**2, axis=1)))


def uniformity(vectors: np.ndarray) -> float:
    """Logarithm of the mean of exp(-2 d²) over all pairs of rows; less is better, 0 at worst.

    d is the distance on the unit sphere (Wang and Isola 2020, t = 2).

    Args:
      vectors: float `[n, dim]`, scaled to length 1 here.

    Raises:
      ValueError: for fewer than two or values that are no numbers.
    """
    scaled = unit(_checked(vectors))
    count = len(scaled)
    if count < 2:
        raise ValueError(f"need at least 2 vectors, got {count}")
    lengths = np.einsum("nd,nd->n", scaled, scaled)
    total = 0.0
    for start in range(0, count, _ROWS):
        block = scaled[start : start + _ROWS]
        squared = lengths[start : start + _ROWS, np.newaxis] + lengths - 2.0 * (block @ scaled.T)
        kernel = np.exp(-2.0 * np.maximum(squared, 0.0))
        # Each pair once: what stands right of the diagonal.
        total += float(np.triu(kernel, k=start + 1).sum(dtype=np.float64))
    return float(np.log(total / (count * (count - 1) / 2)))


def random_pair_cosines(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Cosines of random pairs of different rows, drawn with replacement: float64 `[count]`.

    Args:
      vectors: float `[n, dim]`.
      count: pairs.
      seed: of the draw.

    Raises:
      ValueError: for fewer than two vectors or values that are no numbers.
    """
    scaled = unit64(_checked(vectors))
    if len(scaled) < 2:
        raise ValueError(f"need at least 2 vectors, got {len(scaled)}")
    generator = np.random.default_rng(seed)
    first = generator.integers(len(scaled), size=count)
    second = (first + generator.integers(1, len(scaled), size=count)) % len(scaled)
    return np.einsum("nd,nd->n", scaled[first], scaled[second])


def histogram(cosines: np.ndarray, bins: int) -> list[float]:
    """Shares of cosines in equal bins from -1 to 1; none for no cosines."""
    if not len(cosines):
        return []
    counts, _ = np.histogram(np.clip(cosines, -1.0, 1.0), bins=bins, range=(-1.0, 1.0))
    return (counts / len(cosines)).tolist()


def _checked(vectors: np.ndarray) -> np.ndarray:
    matrix = np.asarray(vectors, np.float64)
    if matrix.ndim != 2 or not len(matrix):
        raise ValueError(f"need vectors [n, dim], got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("the vectors hold NaN or infinity")
    return matrix
