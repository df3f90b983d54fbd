"""A set of 64-bit keys in 8 bytes each."""

import numpy as np


class KeySet:
    """Keys that were seen, in sorted arrays, each at most half as long as the one before.

    A key takes 8 bytes; while two arrays are merged, their keys take twice as much. With n keys
    there are at most log2(n) arrays to search, and each key is merged about as often.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Which of the keys are in the set; [keys], uint64 -> bool."""
        found = np.zeros(len(keys), bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, keys), len(run) - 1)
            found |= run[places] == keys
        return found

    def add(self, keys: np.ndarray) -> None:
        """Adds keys of which none is in the set yet, each once, in any order; [keys], uint64."""
        if not len(keys):
            return
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            # Stable, as that sort merges what is sorted already.
            run.sort(kind="stable")
        self._runs.append(run)
