"""Isotropy, mean vector, alignment and uniformity of embeddings.

Vectors are float `[n, dim]`; row i of `first` is paired with row i of `second`.
"""

import numpy as np
from scipy.special import logsumexp

from official_cmlm.evaluation.metrics.nearest import unit

# Rows of one block of distances; with 10,000 vectors a block takes 40 MB.
_ROWS = 1024


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
