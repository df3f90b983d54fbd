"""64-bit hashes, against plain integers of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.common.hashing import GOLDEN_GAMMA, MIX_1, MIX_2, mix, ngram_hashes

_WORDS = st.lists(st.integers(0, 2**64 - 1), max_size=8)
_MASK = 2**64 - 1


def _mix(word: int) -> int:
    word = (word ^ word >> 30) * MIX_1 & _MASK
    word = (word ^ word >> 27) * MIX_2 & _MASK
    return word ^ word >> 31


@given(_WORDS)
def test_mix(words):
    """SplitMix64's finaliser."""
    array = np.array(words, np.uint64)
    assert mix(array).tolist() == [_mix(word) for word in words]


@given(_WORDS, st.integers(1, 4))
def test_ngram_hashes(words, size):
    """Polynomials of each run of words; none where there are fewer."""
    expected = []
    for start in range(len(words) - size + 1):
        value = 0
        for word in words[start : start + size]:
            value = (value * GOLDEN_GAMMA + word) & _MASK
        expected.append(value)
    assert ngram_hashes(np.array(words, np.uint64), size).tolist() == expected
