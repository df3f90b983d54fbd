"""How a line of the comparison of precisions is made of losses."""

import pytest

from benchmarks.mixed_precision import CASES, row
from official_cmlm.objectives import objectives


@pytest.mark.parametrize(
    ("half", "inside", "difference"),
    [
        ([2.0, 2.2, 2.4], True, "+0.1000"),
        ([2.1, 2.3, 2.3], False, "+0.1333"),
        ([2.5, 2.5, 2.5], False, "+0.4000"),
        ([1.0, 1.0, 1.0], True, "-1.1000"),
    ],
)
def test_within_the_spread(half, inside, difference):
    """The mean may be as high as the worst of float32's losses, 2.2; a lower one is no failure."""
    line, found = row("mlm", [2.0, 2.2, 2.1], half)
    assert found == inside
    assert line.split(" | ")[1:4:2] == ["2.1000 (0.2000)", difference]


def test_every_objective():
    """None is left out."""
    assert set(CASES) == set(objectives())
