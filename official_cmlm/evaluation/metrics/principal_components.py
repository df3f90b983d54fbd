"""Principal component removal (PCR, CMLM §5.2): takes out what a language's sentences share.

"Removing the first principal component of each monolingual space from sentence representations
effectively eliminates the self language bias." The components are the right singular vectors of the
matrix whose rows are a language's embeddings. That matrix is not centred, so the first component is
close to the direction of the mean embedding.

One projection for all languages, which nobody needs to know the language of a text for, takes out
the subspace that the languages' means span (after Xie et al. 2022, "Discovering Low-rank Subspaces
for Language-agnostic Multilingual Representations").
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading, list_names
from official_cmlm.common.files import refuse_special
from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.nearest import unit

FORMULAS = ("unit", "printed")
# Smaller differences of means, relative to the means, are rounding errors of float32.
_LEAST_DIFFERENCE = 1e-5


def language_subspace(
    means: Mapping[str, np.ndarray], directions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the directions in which the languages' means differ most, and the mean of the means.

    `v -> (v - mean) - (v - mean) @ basis.T @ basis` is the projection that removes them. Xie et al.
    choose a mean that is orthogonal to the basis and leave it in; here it is subtracted.

    Args:
      means: language -> float `[dim]`, the mean of its vectors.
      directions: at most one less than the languages.

    Returns:
      basis float64 `[directions, dim]` with orthonormal rows, and mean float64 `[dim]`.

    Raises:
      UserError: if the means differ in fewer directions.
    """
    rows = np.array(list(means.values()), np.float64)
    mean = rows.mean(axis=0)
    _, sizes, basis = np.linalg.svd(rows - mean, full_matrices=False)
    rank = int((sizes > _LEAST_DIFFERENCE * np.linalg.norm(rows)).sum())
    if directions > rank:
        raise UserError(
            f"language_components={directions}: the means of {len(means)} languages "
            f"({list_names(list(means), 20)}) differ in {rank} directions; give texts of more "
            "languages, or a smaller number"
        )
    return basis[:directions], mean


@dataclasses.dataclass(frozen=True)
class PrincipalComponentRemoval:
    """A removal of each language's principal components from its embeddings.

    >>> rng = np.random.default_rng(0)
    >>> embeddings = {"en": rng.normal(size=[50, 4]) + 3, "de": rng.normal(size=[50, 4]) - 3}
    >>> removal = PrincipalComponentRemoval.fit(embeddings)
    >>> removed = removal(embeddings["en"], "en")
    >>> bool(np.abs(removed @ removal.components["en"][0]).max() < 1e-6)
    True

    Attributes:
      components: language -> float64 `[num_components, dim]`, orthonormal rows; those of "" are for
        languages that have none of their own.
      means: language -> float64 `[dim]`, subtracted first; zeros unless fitted with `center`.
      formula: `unit`, v − (vᵀc) c of vectors that are scaled to length 1 first; or `printed`,
        §5.2's v − (vᵀc / ‖v‖) c of vectors as they are, a projection for length 1 only.
    """

    components: Mapping[str, np.ndarray]
    means: Mapping[str, np.ndarray]
    formula: str = "unit"

    @classmethod
    def fit(
        cls,
        embeddings: Mapping[str, np.ndarray],
        num_components: int = 1,
        center: bool = False,
        formula: str = "unit",
    ) -> "PrincipalComponentRemoval":
        """Computes each language's components.

        Args:
          embeddings: language -> float `[n, dim]`, e.g. of the texts to be compared.
          num_components: number of components to remove. Default 1 (§5.2).
          center: subtract each language's mean first. Default false, as published.
          formula: see the class. The components are those of the vectors that it takes.

        Raises:
          UserError: if a language has fewer rows, or vectors fewer dimensions, than components.
        """
        components, means = {}, {}
        for language, vectors in embeddings.items():
            matrix = _prepare(vectors, formula)
            if not 1 <= num_components <= min(matrix.shape):
                raise UserError(
                    f"{num_components} components cannot be removed from the {matrix.shape[0]} "
                    f"vectors of {matrix.shape[1]} dimensions of {language!r}; lower num_components"
                )
            mean = matrix.mean(axis=0) if center else np.zeros(matrix.shape[1])
            # Right singular vectors are the eigenvectors of the small Gram matrix, largest last.
            centred = matrix - mean
            _, vectors_by_size = np.linalg.eigh(centred.T @ centred)
            components[language] = vectors_by_size[:, ::-1][:, :num_components].T.copy()
            means[language] = mean
        return cls(components, means, formula)

    @classmethod
    def fit_common(
        cls, embeddings: Mapping[str, np.ndarray], directions: int, formula: str = "unit"
    ) -> "PrincipalComponentRemoval":
        """Computes one projection for texts of any language: see `language_subspace`."""
        means = {name: _prepare(rows, formula).mean(axis=0) for name, rows in embeddings.items()}
        basis, mean = language_subspace(means, directions)
        return cls({"": basis}, {"": mean}, formula)

    def __call__(self, vectors: np.ndarray, language: str) -> np.ndarray:
        """Removes the language's components from float `[n, dim]`: float32 of the same shape.

        Raises:
          ValueError: for a language that was not fitted.
        """
        key = language if language in self.components else ""
        if key not in self.components:
            known = ", ".join(sorted(self.components))
            raise ValueError(f"no components for language {language!r}; fitted: {known}")
        matrix = _prepare(vectors, self.formula) - self.means[key]
        components = self.components[key]
        shares = matrix @ components.T
        if self.formula == "printed":
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
            shares /= np.where(lengths > 0, lengths, 1.0)
        return (matrix - shares @ components).astype(np.float32)

    def encoder(self, encode: Encode, language: str) -> Encode:
        """Returns `encode` followed by the removal; an encoder for any evaluation."""
        return lambda sentences: self(encode(sentences), language)

    def save(self, path: str | os.PathLike) -> None:
        """Writes an `.npz` file; `load` reads it."""
        languages = sorted(self.components)
        arrays = {f"components/{name}": self.components[name] for name in languages}
        arrays |= {f"mean/{name}": self.means[name] for name in languages}
        with open(path, "wb") as file:
            np.savez(file, formula=np.array(self.formula), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "PrincipalComponentRemoval":
        """Reads what `save` wrote.

        Raises:
          UserError: if the file is missing or was not written by `save`.
        """
        refuse_special(path)
        with guard_reading(path, "fit and save them again"):
            with np.load(path, allow_pickle=False) as arrays:
                split = {name: name.partition("/") for name in arrays.files}
                components = {k[2]: arrays[n] for n, k in split.items() if k[0] == "components"}
                means = {k[2]: arrays[n] for n, k in split.items() if k[0] == "mean"}
                formula = str(arrays["formula"])
        if not components or components.keys() != means.keys():
            raise UserError(f"{path}: holds no principal components; fit and save them again")
        return cls(components, means, formula)


@dataclasses.dataclass(frozen=True)
class RemovalOptions:
    """Options of suites that score retrieval with and without principal component removal.

    Attributes:
      pcr: also score with principal component removal. Default true (CMLM §5.2, Table 8, Fig. 2).
      num_components: components to remove per language. Default 1 (CMLM §5.2).
      center: subtract each language's mean before the components are computed. Default false: the
        paper's component is the first right singular vector of the uncentred embeddings.
      sides: remove the components from `both` sides of a retrieval or from the `queries` only.
        Default `both`: the text of CMLM §5.2 says each language, its formula the query.
      formula: `unit` (default), the projection of vectors of length 1, or `printed`, §5.2's formula
        to the letter; see `PrincipalComponentRemoval`.
      language_components: remove this many directions of the languages' means, and their mean, from
        all texts by one projection (after Xie et al. 2022), in place of each language's components;
        at most one less than the languages. Default 0: each language's components.
    """

    pcr: bool = True
    num_components: Annotated[int, at_least(1)] = 1
    center: bool = False
    sides: Annotated[str, OneOf(("both", "queries"))] = "both"
    formula: Annotated[str, OneOf(FORMULAS)] = "unit"
    language_components: Annotated[int, at_least(0)] = 0

    def fit(self, embeddings: Mapping[str, np.ndarray]) -> PrincipalComponentRemoval:
        """Returns the removal with these options, fitted to each language's embeddings."""
        if self.language_components:
            fit_common = PrincipalComponentRemoval.fit_common
            return fit_common(embeddings, self.language_components, self.formula)
        return PrincipalComponentRemoval.fit(
            embeddings, self.num_components, self.center, self.formula
        )


def _prepare(vectors: np.ndarray, formula: str) -> np.ndarray:
    return unit(vectors, np.float64) if formula == "unit" else np.asarray(vectors, np.float64)
