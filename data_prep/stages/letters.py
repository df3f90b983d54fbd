"""Keys of duplicates: hashes of a text's bytes, of its normalised letters, of its words (near).

Case, white space, punctuation and Unicode's ways to write the same character do not count: "Don't!"
and "do n't" have the same letters. Whole batches of texts are computed at once with NumPy.
"""

import dataclasses
import functools
import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np

from official_cmlm.common.hashing import GOLDEN_GAMMA, mix, ngram_hashes
from official_cmlm.common.languages import UNSPACED
from official_cmlm.common.normal_forms import normalise

from . import batches

# Beyond the last assigned letter there are only private-use and special characters.
_LAST_LETTER = 0x323AF
_SEPARATOR, _SPACED, _ALONE = 0, 1, 2
# Characters analysed at once: few enough that intermediate results stay in the cache of a core.
_CHUNK_CHARACTERS = 1 << 16
_BASE = np.uint64(GOLDEN_GAMMA)


@dataclasses.dataclass(frozen=True)
class Letters:
    """Texts normalised for the comparison of duplicates.

    Attributes:
      letters: code points of the letters, digits and marks of all normalised texts; uint32.
      letter_splits: text i has `letters[letter_splits[i] : letter_splits[i + 1]]`; int64.
      words: 64-bit hashes of the words of all texts in order; a character of a script without
        spaces is a word. uint64.
      word_splits: as `letter_splits`, for `words`.
    """

    letters: np.ndarray
    letter_splits: np.ndarray
    words: np.ndarray
    word_splits: np.ndarray


def analyse(texts: Sequence[str]) -> Letters:
    """Returns the letters and words of texts, after NFKC and case folding."""
    parts = [_analyse(chunk) for chunk in batches(texts, len, _CHUNK_CHARACTERS)]
    return Letters(
        np.concatenate([np.zeros(0, np.uint32), *(part.letters for part in parts)]),
        _splits([np.diff(part.letter_splits) for part in parts]),
        np.concatenate([np.zeros(0, np.uint64), *(part.words for part in parts)]),
        _splits([np.diff(part.word_splits) for part in parts]),
    )


def letter_keys(analysis: Letters, splits: np.ndarray | None = None) -> np.ndarray:
    """Returns a 64-bit hash of each text's letters; 0 for a text without any.

    64 bits suffice: among 10^9 different texts, 0.03 pairs are expected to share a key.

    Args:
      analysis: the texts, as `analyse` returns them.
      splits: texts that belong together: group i is texts `splits[i]` up to `splits[i + 1]`;
        None: each text is a group.

    Returns:
      Keys, [texts] or [groups], uint64; the same in every process and on every machine.
    """
    bounds = analysis.letter_splits if splits is None else analysis.letter_splits[splits]
    letters = analysis.letters.astype("<u4", copy=False).data
    keys = np.zeros(len(bounds) - 1, np.uint64)
    for row, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist())):
        if start < stop:
            digest = hashlib.blake2b(letters[start:stop], digest_size=8).digest()
            keys[row] = int.from_bytes(digest, "little")
    return keys


def byte_keys(texts: Sequence[str]) -> np.ndarray:
    """Returns a 64-bit hash of each text's bytes in UTF-8, never 0; [texts], uint64."""
    keys = np.zeros(len(texts), np.uint64)
    for row, text in enumerate(texts):
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        keys[row] = int.from_bytes(digest, "little") or 1
    return keys


def shingles(
    analysis: Letters, size: int, splits: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Hashes all runs of `size` words, with repetitions; a text with fewer words has none.

    Args:
      analysis: the texts, as `analyse` returns them.
      size: words of a run.
      splits: as for `letter_keys`; runs cross the border between texts of a group.

    Returns:
      (hashes of all texts in order, uint64; row splits, [texts + 1], int64)
    """
    bounds = analysis.word_splits if splits is None else analysis.word_splits[splits]
    hashes = ngram_hashes(analysis.words, size)
    # Runs that would reach into the next text are left out.
    lengths = np.maximum(0, np.diff(bounds) - size + 1)
    new_bounds = _splits([lengths])
    starts = np.repeat(bounds[:-1] - new_bounds[:-1], lengths)
    return mix(hashes[starts + np.arange(len(starts))]), new_bounds


def _splits(lengths: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))])


def _normalise(text: str) -> str:
    return text.lower() if text.isascii() else normalise("NFKC", text).casefold()


def _analyse(texts: Sequence[str]) -> Letters:
    normalised = [_normalise(text) for text in texts]
    ends = np.cumsum([len(text) for text in normalised], dtype=np.int64)
    joined = "".join(normalised).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(joined, "<u4")
    kinds = _kinds()[np.minimum(codes, _LAST_LETTER + 1)]
    is_letter = kinds != _SEPARATOR
    begins = (kinds == _SPACED) & np.append(True, kinds[:-1] != _SPACED)[: len(kinds)]
    begins |= kinds == _ALONE
    # A text does not continue the last word of the text before it.
    firsts = ends[:-1][ends[:-1] < len(codes)]
    begins[firsts] |= is_letter[firsts]
    letters = codes[is_letter]
    starts = np.flatnonzero(begins[is_letter])
    before = np.append(0, np.cumsum(is_letter))
    words_before = np.append(0, np.cumsum(begins))
    bounds = np.append(0, ends)
    return Letters(letters, before[bounds], _word_hashes(letters, starts), words_before[bounds])


def _word_hashes(letters: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns a hash of each word: a polynomial of its letters, modulo 2^64, mixed."""
    if not len(starts):
        return np.zeros(0, np.uint64)
    lengths = np.diff(np.append(starts, len(letters)))
    places = np.arange(len(letters)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max()), _BASE)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    values = _random_numbers()[letters] * powers[places]
    return mix(np.add.reduceat(values, starts))


@functools.cache
def _random_numbers() -> np.ndarray:
    """Returns a random number for each code point, in the order of `_kinds`; uint64."""
    return mix(np.arange(_LAST_LETTER + 2, dtype=np.uint64) + _BASE)


@functools.cache
def _kinds() -> np.ndarray:
    """Returns the kind of each code point up to the last letter, then that of all others; uint8."""
    kinds = np.zeros(_LAST_LETTER + 2, np.uint8)
    # Letters, marks and numbers: without its marks "की" would equal "का".
    kinds[:-1] = [
        _SPACED if unicodedata.category(chr(code))[0] in "LMN" else _SEPARATOR
        for code in range(_LAST_LETTER + 1)
    ]
    for first, last in UNSPACED:
        kinds[first : last + 1] *= _ALONE
    return kinds
