"""What the retrieval suites share: who finds its own row, and removal fitted to what is there."""

from collections.abc import Mapping

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.nearest import nearest, unit
from official_cmlm.evaluation.principal_components import PrincipalComponentRemoval


def finds_own_row(queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Whether the candidate with the largest cosine of query i is candidate i: bool `[n]`.

    Of equally near candidates the lowest index is the neighbour, as exact search returns it; a
    vector of zeros is equally far from all.

    Args:
      queries, candidates: float `[n, dim]`, rows aligned.

    Raises:
      ValueError: if their numbers of rows differ or are 0.
    """
    if len(queries) != len(candidates) or not len(queries):
        raise ValueError(
            f"need as many queries as candidates, got {len(queries)} and {len(candidates)}"
        )
    indices, _ = nearest(unit(queries), unit(candidates))
    return indices[:, 0] == np.arange(len(queries))


def fit_removal(
    embeddings: Mapping[str, np.ndarray], num_components: int, center: bool
) -> PrincipalComponentRemoval:
    """Principal component removal, fitted to each language's own embeddings.

    Args:
      embeddings: language -> float `[n, dim]`.
      num_components: how many to remove.
      center: subtract each language's mean first.

    Raises:
      UserError: if a language has fewer rows, or vectors fewer dimensions, than components.
    """
    for language, vectors in embeddings.items():
        if num_components > min(vectors.shape):
            raise UserError(
                f"{num_components} components cannot be removed from the {vectors.shape[0]} "
                f"vectors of {vectors.shape[1]} dimensions of {language!r}; lower num_components"
            )
    return PrincipalComponentRemoval.fit(embeddings, num_components, center)
