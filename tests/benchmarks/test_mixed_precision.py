"""How a line of the comparison of precisions is made of losses."""

import pytest

from benchmarks.mixed_precision import CASES, row
from official_cmlm.objectives import objectives


@pytest.mark.parametrize(
    ("half", "inside", "difference"),
    [
        ([2.0, 2.2, 2.4], True, "+0.1000"),
        ([2.5, 2.5, 2.5], False, "+0.4000"),
        ([1.0, 1.0, 1.0], True, "-1.1000"),
    ],
)
def test_within_the_spread(half, inside, difference):
    """The mean may be higher by float32's spread, here 0.2; a lower loss is no failure."""
    line, found = row("mlm", [2.0, 2.2, 2.1], half)
    assert found == inside
    assert line.split(" | ")[1:4:2] == ["2.1000 (0.2000)", difference]


def test_every_objective():
    """None is left out."""
    assert set(CASES) == set(objectives())
