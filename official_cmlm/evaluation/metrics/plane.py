"""Embeddings of several languages in two dimensions, to be drawn (CMLM, Figure 3)."""

from collections.abc import Mapping

import numpy as np

from official_cmlm.evaluation.metrics.nearest import unit

_SENTENCES = 100


def plane(
    embeddings: Mapping[str, np.ndarray], rows: int = _SENTENCES
) -> dict[str, list[list[float]]]:
    """Projects unit embeddings on the first two principal axes of all languages together.

    Args:
      embeddings: language -> float `[n, dim]`.
      rows: number of sentences per language, from the first.

    Returns:
      language -> [x, y] of each sentence; the sign of each axis makes its entry of largest absolute
      value positive.
    """
    parts = {language: unit(vectors[:rows]) for language, vectors in embeddings.items()}
    matrix = np.concatenate(list(parts.values())).astype(np.float64)
    matrix -= matrix.mean(axis=0)
    axes = np.linalg.svd(matrix, full_matrices=False)[2][:2]
    # Singular vectors are unique up to their sign; fix it.
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    points = np.zeros([len(matrix), 2])
    points[:, : len(axes)] = matrix @ (axes * np.sign(largest)[:, np.newaxis]).T
    split = np.split(points, np.cumsum([len(part) for part in parts.values()])[:-1])
    return {language: part.tolist() for language, part in zip(parts, split)}
