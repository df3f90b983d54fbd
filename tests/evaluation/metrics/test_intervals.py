"""Confidence intervals against values computed by hand and by simulation."""

import numpy as np
import pytest
from scipy import stats

from official_cmlm.evaluation.metrics.intervals import (
    bootstrap,
    bootstrap_means,
    compare_pairs,
    estimate,
)
from official_cmlm.evaluation.suites.qnli import area_under_curve


def test_statistics_are_those_computed_by_hand():
    """Differences 1, −1, 5: mean 5/3, deviation √(28/3), t of two degrees of freedom 4.302653."""
    comparison = compare_pairs(
        {1: 10.0, 2: 12.0, 3: 17.0, 4: 1.0}, {1: 9.0, 2: 13.0, 3: 12.0, 5: 2.0}
    )
    assert comparison.values == {1: 1.0, 2: -1.0, 3: 5.0}
    assert comparison.mean == pytest.approx(5 / 3)
    assert comparison.deviation == pytest.approx((28 / 3) ** 0.5)
    half = 4.302653 * (28 / 3) ** 0.5 / 3**0.5
    assert comparison.half == pytest.approx(half, rel=1e-6)
    one = estimate({7: 3.0})
    assert (one.mean, one.deviation, one.half) == (3.0, None, None)
    assert compare_pairs({1: 1.0}, {2: 1.0}) is None


def test_a_paired_bootstrap_agrees_with_the_normal_approximation():
    """A mean and a paired difference have the intervals of ±1.96 standard errors."""
    rng = np.random.default_rng(2)
    easy = rng.normal(size=400)
    first, second = easy + rng.normal(0.1, 0.2, 400), easy + rng.normal(0.0, 0.2, 400)
    for columns, values in (((first,), first), ((first, second), first - second)):
        low, high = bootstrap(lambda a, b=0.0: float(np.mean(a - b)), *columns)
        half = 1.96 * values.std(ddof=1) / 20
        assert (low, high) == pytest.approx(
            (values.mean() - half, values.mean() + half), abs=half / 6
        )
    assert bootstrap(np.mean, first) == bootstrap(np.mean, first)
    assert bootstrap(area_under_curve, np.arange(4.0), np.array([0, 0, 0, 1])) is None
    assert bootstrap(np.mean, [1.0]) is None


def test_intervals_of_means_are_those_of_scipy():
    """Within what 10,000 samples leave to chance; those of a difference are paired."""
    rng = np.random.default_rng(1)
    first = rng.normal(size=80)
    columns = np.stack([first, first + 1, rng.normal(size=80) ** 2], axis=1)
    ends = bootstrap_means(columns)
    for column, own in zip(columns.T, ends):
        sampled = stats.bootstrap([column], np.mean, method="percentile", rng=2)
        np.testing.assert_allclose(own, sampled.confidence_interval, atol=0.02)
    np.testing.assert_allclose(bootstrap_means(columns[:, :1] - columns[:, 1:2]), [[-1, -1]])
    np.testing.assert_array_equal(ends, bootstrap_means(columns))
    np.testing.assert_array_equal(bootstrap_means(np.full([1, 1], 5.0)), [[5, 5]])
