"""64-bit hashes of NumPy arrays: the same in every process and on every machine."""

import numpy as np

# The increment and the multipliers of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable
# pseudorandom number generators"), whose finaliser `mix` is a bijection of 64-bit words.
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def mix(words: np.ndarray) -> np.ndarray:
    """Applies SplitMix64's finaliser to uint64 of any shape."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(MIX_1)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(MIX_2)
    return words ^ (words >> np.uint64(31))


def unmix(words: np.ndarray) -> np.ndarray:
    """Returns the inverse of `mix`; uint64 of any shape."""
    words = _undo_shift(words, 31) * np.uint64(pow(MIX_2, -1, 1 << 64))
    words = _undo_shift(words, 27) * np.uint64(pow(MIX_1, -1, 1 << 64))
    return _undo_shift(words, 30)


def ngram_hashes(words: np.ndarray, size: int) -> np.ndarray:
    """Returns polynomial hashes of every `size` consecutive words, modulo 2^64.

    `words` are the words' hashes, uint64 `[words]`. The result is uint64
    `[max(0, words - size + 1)]`; its low bits depend only on the low bits of `words`.
    """
    count = max(0, len(words) - size + 1)
    hashes = np.zeros(count, np.uint64)
    for place in range(size):
        hashes = hashes * np.uint64(GOLDEN_GAMMA) + words[place : place + count]
    return hashes


def _undo_shift(words: np.ndarray, bits: int) -> np.ndarray:
    """Inverts x ^ (x >> bits); each round recovers `bits` more of the high bits."""
    found = words
    for _ in range(64 // bits):
        found = words ^ (found >> np.uint64(bits))
    return found
