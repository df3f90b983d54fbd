"""MinHash signatures: the similarity of two texts, estimated from a few bytes of each."""

import dataclasses
from typing import ClassVar

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.hashing import GOLDEN_GAMMA, mix


@dataclasses.dataclass(frozen=True)
class MinHash:
    """How signatures are made and compared.

    Two texts are candidates if all rows of one band agree, which for texts of Jaccard similarity s
    happens with probability 1 − (1 − s^rows)^bands, one half near s = (1/bands)^(1/rows).

    Attributes:
      bands: default 20. Lee et al. 2022, "Deduplicating Training Data Makes Language Models
        Better", appendix A, take 450 bands of 20 rows (one half at 0.72), some 9,000 hashes a text;
        160 hashes are nearly as good for texts well above the threshold.
      rows: hashes of a band; default 8. With 20 bands texts of similarity 0.6, 0.7, 0.8, 0.9 are
        candidates with probability 0.29, 0.69, 0.975, 0.99999; one half at 0.66.
      threshold: estimated Jaccard similarity from which candidates are duplicates; default 0.75,
        so that of texts at 0.8 (Lee et al.'s definition) few are missed: the estimate's standard
        deviation there is 0.03.
      shingle_words: words of a shingle; default 5, as Lee et al. A character of a script without
        spaces is a word.
      min_shingles: a text with fewer has no signature, as it is too short to tell an edited copy
        from another text. Default 10.
      seed: of the hash functions.

    Raises:
      UserError: a value is out of range.
    """

    bands: int = 20
    rows: int = 8
    threshold: float = 0.75
    shingle_words: int = 5
    min_shingles: int = 10
    seed: int = 1
    # More would find pairs of a similarity of 0.5 too, and take gigabytes for a batch of texts.
    MAX_BANDS: ClassVar[int] = 256

    def __post_init__(self) -> None:
        for name in ("bands", "rows", "shingle_words", "min_shingles"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.bands > self.MAX_BANDS:
            raise UserError(f"bands is {self.bands}; give at most {self.MAX_BANDS}")
        if not 0 < self.threshold <= 1:
            raise UserError(f"threshold is {self.threshold:g}; give a share above 0, up to 1")

    @property
    def permutations(self) -> int:
        """Hashes of a signature."""
        return self.bands * self.rows


def minima(shingles: np.ndarray, splits: np.ndarray, options: MinHash) -> np.ndarray:
    """The least value of each hash function over each text's shingles.

    Args:
      shingles: 64-bit hashes of all texts' shingles; repetitions do not count.
      splits: row splits, [texts + 1].
      options: decides the hash functions.

    Returns:
      [texts, permutations], uint32.
    """
    check_extra("data", "rensa")
    from rensa import RMinHash

    if len(splits) == 1:
        return np.zeros((0, options.permutations), np.uint32)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.ascontiguousarray(shingles),
        np.asarray(splits, np.uint64),
        options.permutations,
        options.seed,
    )
    return np.array(matrix.to_rows(), np.uint32)


def band_keys(minima: np.ndarray, options: MinHash) -> np.ndarray:
    """A hash of each band's rows and of the band's number; [texts, bands], uint64."""
    rows = minima.reshape(-1, options.bands, options.rows).astype(np.uint64)
    keys = np.broadcast_to(np.arange(options.bands, dtype=np.uint64), rows.shape[:2])
    for at in range(options.rows):
        keys = mix(keys + rows[:, :, at] + np.uint64(GOLDEN_GAMMA))
    return keys


def signatures(minima: np.ndarray) -> np.ndarray:
    """The lowest byte of each minimum; [texts, permutations], uint8.

    A quarter of the memory for hardly less precision: Li and König 2010, "b-Bit Minwise Hashing".
    """
    return minima.astype(np.uint8)


def similarities(signature: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Estimated Jaccard similarities of one text and others.

    Args:
      signature: [permutations], uint8.
      others: [texts, permutations], uint8.

    Returns:
      [texts], float64. Without bias, so that of unlike texts it may be a little below 0.
    """
    chance = 1 / 256
    return ((signature == others).mean(axis=1) - chance) / (1 - chance)
