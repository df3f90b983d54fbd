"""Embeddings of several languages in two dimensions, to be drawn (CMLM, Figure 3)."""

from collections.abc import Mapping

import numpy as np
from sklearn.decomposition import PCA

from official_cmlm.evaluation.metrics.nearest import unit

SENTENCES = 100


def plane(embeddings: Mapping[str, np.ndarray]) -> dict[str, list[list[float]]]:
    """Projects unit embeddings on the first two principal axes of all languages together.

    Args:
      embeddings: language -> float `[n, dim]`, of which the first 100 are drawn.

    Returns:
      language -> [x, y] of each sentence; the sign of each axis makes its entry of largest absolute
      value positive.
    """
    parts = [unit(vectors[:SENTENCES], np.float64) for vectors in embeddings.values()]
    matrix = np.concatenate(parts)
    points = np.zeros([len(matrix), 2])
    count = min(2, *matrix.shape)
    points[:, :count] = PCA(count, svd_solver="full").fit_transform(matrix)
    split = np.split(points, np.cumsum(list(map(len, parts)))[:-1])
    return {language: part.tolist() for language, part in zip(embeddings, split)}
