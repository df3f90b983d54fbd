"""Principal component removal: what a language's sentences have in common is taken out (CMLM §5.2).

"Removing the first principal component of each monolingual space from sentence representations
effectively eliminates the self language bias." A component is a right singular vector of the matrix
whose rows are a language's embeddings, which is not centred; so the first one is close to the
direction of their mean.
"""

import dataclasses
import os
import zipfile
from collections.abc import Mapping

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.nearest import unit64

SIDES = ("both", "queries")


@dataclasses.dataclass(frozen=True)
class PrincipalComponentRemoval:
    """Components by language, and how they are removed.

    >>> rng = np.random.default_rng(0)
    >>> embeddings = {"en": rng.normal(size=[50, 4]) + 3, "de": rng.normal(size=[50, 4]) - 3}
    >>> removal = PrincipalComponentRemoval.fit(embeddings)
    >>> removed = removal(embeddings["en"], "en")
    >>> bool(np.abs(removed @ removal.components["en"][0]).max() < 1e-6)
    True

    Attributes:
      components: language -> float64 `[num_components, dim]`, orthonormal rows.
      means: language -> float64 `[dim]`, subtracted first; zeros unless fitted with `center`.
      normalize: scale vectors to length 1 before anything else. The paper divides by ‖v‖ in the
        formula of the projection, which is a projection only for vectors of length 1.
    """

    components: Mapping[str, np.ndarray]
    means: Mapping[str, np.ndarray]
    normalize: bool = True

    @classmethod
    def fit(
        cls,
        embeddings: Mapping[str, np.ndarray],
        num_components: int = 1,
        center: bool = False,
        normalize: bool = True,
    ) -> "PrincipalComponentRemoval":
        """Finds each language's components.

        Args:
          embeddings: language -> float `[n, dim]`, e.g. of the texts that are to be compared.
          num_components: how many to remove. Default 1 (§5.2).
          center: subtract each language's mean first. Default false, as published.
          normalize: see the class. Default true.

        Raises:
          ValueError: if a language has fewer rows, or vectors fewer dimensions, than components.
        """
        components, means = {}, {}
        for language, vectors in embeddings.items():
            matrix = _prepared(vectors, normalize)
            if not 1 <= num_components <= min(matrix.shape):
                raise ValueError(
                    f"num_components must be 1 to {min(matrix.shape)} for the "
                    f"{matrix.shape[0]} vectors of {matrix.shape[1]} dimensions of {language!r}, "
                    f"got {num_components}"
                )
            mean = matrix.mean(axis=0) if center else np.zeros(matrix.shape[1])
            # Right singular vectors are the eigenvectors of the small Gram matrix, largest last.
            centred = matrix - mean
            _, vectors_by_size = np.linalg.eigh(centred.T @ centred)
            components[language] = vectors_by_size[:, ::-1][:, :num_components].T.copy()
            means[language] = mean
        return cls(components, means, normalize)

    def __call__(self, vectors: np.ndarray, language: str) -> np.ndarray:
        """Removes the language's components from float `[n, dim]`: float32 of the same shape.

        Raises:
          ValueError: for a language that was not fitted.
        """
        if language not in self.components:
            known = ", ".join(sorted(self.components))
            raise ValueError(f"no components for language {language!r}; fitted: {known}")
        matrix = _prepared(vectors, self.normalize) - self.means[language]
        components = self.components[language]
        return (matrix - matrix @ components.T @ components).astype(np.float32)

    def encoder(self, encode: Encode, language: str) -> Encode:
        """`encode` with the components removed: fits wherever an evaluation takes an encoder."""
        return lambda sentences: self(encode(sentences), language)

    def retrieval(
        self,
        queries: np.ndarray,
        candidates: np.ndarray,
        query_language: str,
        candidate_language: str,
        sides: str = "both",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both sides of a retrieval as they are to be compared.

        Args:
          queries, candidates: float `[n, dim]` and `[m, dim]`.
          query_language, candidate_language: whose components to remove.
          sides: `both` (default), or `queries` only; the paper's text names the query's vector.
        """
        if sides not in SIDES:
            raise ValueError(f"sides must be one of {', '.join(SIDES)}, got {sides!r}")
        removed = self(queries, query_language)
        if sides == "queries":
            return removed, np.asarray(candidates, np.float32)
        return removed, self(candidates, candidate_language)

    def save(self, path: str | os.PathLike) -> None:
        """Writes an `.npz` file of plain arrays."""
        languages = sorted(self.components)
        arrays = {f"components/{name}": self.components[name] for name in languages}
        arrays |= {f"mean/{name}": self.means[name] for name in languages}
        with open(path, "wb") as file:
            np.savez(file, normalize=np.array(self.normalize), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "PrincipalComponentRemoval":
        """Reads what `save` wrote.

        Raises:
          UserError: if the file is missing or is none of these.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                split = {name: name.partition("/") for name in arrays.files}
                components = {k[2]: arrays[n] for n, k in split.items() if k[0] == "components"}
                means = {k[2]: arrays[n] for n, k in split.items() if k[0] == "mean"}
                normalize = bool(arrays["normalize"])
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: no principal components of this project ({error})") from None
        if not components or components.keys() != means.keys():
            raise UserError(f"{path}: holds no principal components; fit them again")
        return cls(components, means, normalize)


def _prepared(vectors: np.ndarray, normalize: bool) -> np.ndarray:
    return unit64(vectors) if normalize else np.asarray(vectors, np.float64)
