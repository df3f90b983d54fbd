"""Isotropy, mean vector, alignment, uniformity, cosine histograms and maps of embeddings.

Vectors are float `[n, dim]`; row i of `first` is paired with row i of `second`.
"""

from collections.abc import Mapping

import numpy as np
from scipy.special import logsumexp
from sklearn.decomposition import PCA

from official_cmlm.evaluation.metrics.nearest import unit

# Rows of one block of distances; with 10,000 vectors a block takes 40 MB.
_ROWS = 1024
# Sentences of a language on a map.
_DRAWN = 100


def isotropy_score(vectors: np.ndarray, by_rows: bool = False) -> float:
    """Returns the isotropy score, 0 (all in a narrow cone) to 1 (isotropic); higher is better.

    It is min F(c) / max F(c), where F(c) is the sum of exp(c·v) over the unscaled vectors v, and c
    runs over the eigenvectors of VᵀV with both signs (Mirror-BERT, Equation 2, after Mu and
    Viswanath 2018). If eigenvalues coincide, eigenvectors and score are not unique.

    With `by_rows` c runs over the rows of the matrix that has the eigenvectors as columns; see
    `suites.geometry`. These rows also depend on the arbitrary sign of each eigenvector.
    """
    matrix = np.asarray(vectors, np.float64)
    _, directions = np.linalg.eigh(matrix.T @ matrix)
    products = matrix @ (directions.T if by_rows else directions)
    # The sums are kept as logarithms, as exp(800) overflows float64.
    sums = np.concatenate([logsumexp(products, axis=0), logsumexp(-products, axis=0)])
    return float(np.exp(sums.min() - sums.max()))


def mean_vector_norm(vectors: np.ndarray) -> float:
    """Returns the norm of the mean vector (Mirror-BERT, Equation 3); 0 if centred."""
    return float(np.linalg.norm(np.mean(vectors, axis=0, dtype=np.float64)))


def alignment(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the mean squared distance of positive pairs, 0 to 4; lower is better.

    Wang and Isola (2020), alpha = 2. Vectors are scaled to length 1 here.
    """
    difference = unit(first, np.float64) - unit(second, np.float64)
    return float(np.mean(np.sum(difference**2, axis=1)))


def uniformity(vectors: np.ndarray) -> float:
    """Returns the logarithm of the mean of exp(-2 d²) over all pairs, at most 0; lower is better.

    d is the distance on the unit sphere (Wang and Isola 2020, t = 2), to which vectors are scaled.
    """
    scaled = unit(vectors)
    count = len(scaled)
    lengths = np.einsum("nd,nd->n", scaled, scaled)
    total = 0.0
    for start in range(0, count, _ROWS):
        block = scaled[start : start + _ROWS]
        squared = lengths[start : start + _ROWS, np.newaxis] + lengths - 2.0 * (block @ scaled.T)
        kernel = np.exp(-2.0 * np.maximum(squared, 0.0))
        # Only the entries right of the diagonal are summed, so that each pair counts once.
        total += float(np.triu(kernel, k=start + 1).sum(dtype=np.float64))
    return float(np.log(total / (count * (count - 1) / 2)))


def random_pair_cosines(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns cosines of random pairs of rows, drawn with replacement: float64 `[count]`."""
    scaled = unit(vectors, np.float64)
    generator = np.random.default_rng(seed)
    first = generator.integers(len(scaled), size=count)
    second = (first + generator.integers(1, len(scaled), size=count)) % len(scaled)
    return np.einsum("nd,nd->n", scaled[first], scaled[second])


def histogram(cosines: np.ndarray, bins: int) -> list[float]:
    """Returns the shares of cosines in equal bins from -1 to 1; empty for no cosines."""
    if not len(cosines):
        return []
    counts, _ = np.histogram(np.clip(cosines, -1.0, 1.0), bins=bins, range=(-1.0, 1.0))
    return (counts / len(cosines)).tolist()


def plane(embeddings: Mapping[str, np.ndarray]) -> dict[str, list[list[float]]]:
    """Projects unit embeddings on the first two principal axes of all languages (CMLM, Figure 3).

    `embeddings` are float `[n, dim]` by language; the first 100 of each are drawn.

    Returns:
      language -> [x, y] of each sentence; the sign of each axis makes its entry of largest absolute
      value positive.
    """
    parts = [unit(vectors[:_DRAWN], np.float64) for vectors in embeddings.values()]
    matrix = np.concatenate(parts)
    points = np.zeros([len(matrix), 2])
    count = min(2, *matrix.shape)
    points[:, :count] = PCA(count, svd_solver="full").fit_transform(matrix)
    split = np.split(points, np.cumsum(list(map(len, parts)))[:-1])
    return {language: part.tolist() for language, part in zip(embeddings, split)}
