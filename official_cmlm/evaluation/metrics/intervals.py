"""Confidence intervals: over seeds, of means and paired differences; over resampled examples."""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from official_cmlm.common.errors import UserError

# Confidence of the intervals.
CONFIDENCE = 0.95
# Number of times that examples are drawn.
RESAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Mean of values and its uncertainty.

    Attributes:
      values: the values by seed.
      mean: their mean.
      deviation: their standard deviation (n - 1); None for a single value.
      half: half of the width of the interval that holds the mean with CONFIDENCE, by Student's t
        with n - 1 degrees of freedom; None for a single value.
    """

    values: dict[int, float]
    mean: float
    deviation: float | None = None
    half: float | None = None


def estimate(values: dict[int, float]) -> Estimate | None:
    """Returns mean, deviation and interval of values by seed; None without values."""
    numbers = list(values.values())
    if len(numbers) < 2:
        return Estimate(values, numbers[0]) if numbers else None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1) * stats.sem(numbers))
    return Estimate(values, statistics.fmean(numbers), statistics.stdev(numbers), half)


def compare_pairs(values: dict[int, float], baseline: dict[int, float]) -> Estimate | None:
    """Estimates the difference of two arms from the seeds that both have."""
    return estimate({s: v - baseline[s] for s, v in values.items() if s in baseline})


def bootstrap(statistic: Callable[..., float], *columns: ArrayLike) -> tuple[float, float] | None:
    """Returns the percentile interval of a statistic over resampled examples, with CONFIDENCE.

    The columns are `[n]` each, of the same n examples. For a difference of two encoders this is a
    paired bootstrap, since the columns of an example stay together (Efron and Tibshirani 1993,
    chapter 13).

    Returns:
      The ends of the interval; None if the statistic raises `ValueError` or `UserError` for a
      sample, as an area under the curve does where all examples have one label.
    """
    try:
        interval = stats.bootstrap(
            [np.asarray(column) for column in columns],
            statistic,
            n_resamples=RESAMPLES,
            batch=100,
            vectorized=False,
            paired=True,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
    except (UserError, ValueError):
        return None
    return float(interval.low), float(interval.high)
