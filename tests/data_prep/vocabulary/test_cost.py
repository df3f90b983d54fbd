"""Warnings about a vocabulary before it is learned."""

import pytest

from data_prep.vocabulary.cost import cost, entries_in_reach, size_warning, text_for


@pytest.mark.parametrize(
    ("megabytes", "entries"), [(5, 90_040), (20, 201_030), (60, 376_557), (150, 466_327)]
)
def test_measurements(megabytes, entries):
    assert entries_in_reach(megabytes * 1e6) == pytest.approx(entries)
    assert text_for(entries) == pytest.approx(megabytes * 1e6, rel=0.01)


def test_between_and_beyond():
    """More text never gives less; the two functions are each other's reverse."""
    sizes = [0, 1, 1e3, 1e5, 5e6, 1e7, 2e7, 1e8, 1.5e8, 1e9, 1e12]
    reached = [entries_in_reach(size) for size in sizes]
    assert reached == sorted(reached)
    for size, entries in zip(sizes[2:], reached[2:]):
        assert text_for(entries) == pytest.approx(size, rel=0.01)
    assert 90_040 < entries_in_reach(10e6) < 201_030
    # A power of the text: doubling it twice is the square of doubling it once.
    once, twice = (entries_in_reach(5e6 * n) / 90_040 for n in (2, 4))
    assert twice == pytest.approx(once**2)


def test_cost():
    """Near the smallest and the largest run, and not below the others."""
    for megabytes, mebibytes, seconds in ((5, 224, 16), (20, 379, 24), (150, 1600, 119)):
        assert cost(megabytes * 1e6) == pytest.approx((mebibytes, seconds), rel=0.15)
    mebibytes, seconds = cost(60e6)
    assert mebibytes > 538 and seconds > 42


def test_warning():
    """It appears only if the size is out of reach, and says whether flag or text is too small."""
    assert size_warning(30_522, 5e6, 1e9) == ""
    assert size_warning(501_153, 1e9, 1e9) == ""
    little = size_warning(501_153, 20e6, 1e9)
    assert little.startswith("--vocab_size=501153 is out of reach: 20 MB of text")
    assert "201030 entries; give 20" in little and "--max_input_mb" not in little
    limited = size_warning(501_153, 1e9, 50e6)
    assert "50 MB" in limited and "raise --max_input_mb to 20" in limited
    assert "more text" not in limited
    assert "and give more text" in size_warning(501_153, 60e6, 50e6)
