"""What the retrieval suites share: who finds its own row, and removal fitted to what is there."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.nearest import nearest, unit
from official_cmlm.evaluation.principal_components import SIDES, PrincipalComponentRemoval


@dataclasses.dataclass(frozen=True)
class RemovalOptions:
    """How principal components are removed in a suite that measures with and without them.

    Attributes:
      pcr: measure with principal component removal as well. Default true (CMLM §5.2, Table 8 and
        Fig. 2).
      num_components: components that are removed per language. Default 1 (CMLM §5.2).
      center: subtract each language's mean before components are found. Default false: the paper's
        component is the first right singular vector of the embeddings as they are.
      sides: `both` sides of a retrieval lose their components, or `queries` only. Default `both`;
        the formula of CMLM §5.2 takes them from the query, its text from each language.
    """

    pcr: bool = True
    num_components: int = 1
    center: bool = False
    sides: str = "both"

    def __post_init__(self) -> None:
        if self.sides not in SIDES:
            raise ValueError(f"sides must be one of {', '.join(SIDES)}, got {self.sides!r}")
        if self.num_components < 1:
            raise ValueError(f"num_components must be at least 1, got {self.num_components}")


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
