"""Strings without meaning."""

from collections import Counter

import pytest

from data_prep.random_strings import RandomStrings, draw_strings
from official_cmlm.common.errors import UserError


def test_strings_are_uniform_letters_and_digits():
    """All differ, lengths are in range, and every character is about as frequent as any other."""
    strings = list(draw_strings(RandomStrings(output="", count=5000)))
    assert len(set(strings)) == 5000
    assert {len(one) for one in strings} == set(range(3, 13))
    counts = Counter("".join(strings))
    assert len(counts) == 62 and "".join(counts).isalnum()
    assert max(counts.values()) < 1.5 * min(counts.values())


@pytest.mark.parametrize(("count", "shortest", "longest"), [(10, 5, 4), (100, 1, 1)])
def test_impossible_strings_are_refused(count, shortest, longest):
    """Lengths in the wrong order, and more strings than there are."""
    with pytest.raises(UserError, match="--"):
        RandomStrings(output="", count=count, min_length=shortest, max_length=longest)
