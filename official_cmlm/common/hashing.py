"""Hashes of arrays and texts, and samples by hash: equal in all processes, on all machines."""

import hashlib
import heapq
from operator import itemgetter
from typing import Any

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


def hash_text(text: str, size: int = 8) -> int:
    """Returns a hash, `size` bytes long, of a text that may hold half surrogate pairs."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size)
    return int.from_bytes(digest.digest())


class Smallest:
    """The items with the smallest hashes, each hash once: the same in any order of the items.

    At most twice the limit are in memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: dict[int, Any] = {}

    def add(self, key: int, item: Any) -> None:
        """Adds an item, unless there is one with its hash."""
        self._items.setdefault(key, item)
        if len(self._items) >= 2 * self._limit:
            self._items = dict(self._smallest())

    def items(self) -> list[Any]:
        """Returns the items in the order of their hashes."""
        return [item for _, item in self._smallest()]

    def _smallest(self) -> list[tuple[int, Any]]:
        return heapq.nsmallest(self._limit, self._items.items(), key=itemgetter(0))
