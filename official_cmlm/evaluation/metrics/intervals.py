"""Confidence intervals: over seeds, of means and paired differences; over resampled examples."""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from official_cmlm.common.errors import UserError

# Confidence of the intervals.
CONFIDENCE = 0.95
# Number of times that examples are drawn; for means, which are computed many at a time, more often.
RESAMPLES, MEAN_RESAMPLES = 1000, 10_000
# Examples that are drawn at a time.
_DRAWN = 1 << 22


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
    from scipy import stats

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
    from scipy import stats

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


def bootstrap_means(values: np.ndarray) -> np.ndarray:
    """Returns the percentile intervals of the means of columns over resampled rows.

    All columns have the same samples, so a column of differences gets the interval of a paired
    bootstrap.

    Args:
      values: float `[n, m]`, m values of each of n examples.

    Returns:
      The ends of each interval with CONFIDENCE, float64 `[m, 2]`.
    """
    count, rng = len(values), np.random.default_rng(0)
    means = np.empty([MEAN_RESAMPLES, values.shape[1]])
    step = max(1, _DRAWN // count)
    for start in range(0, MEAN_RESAMPLES, step):
        samples = min(step, MEAN_RESAMPLES - start)
        drawn = rng.integers(count, size=[samples, count]) + count * np.arange(samples)[:, None]
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        means[start : start + samples] = times @ values / count
    tail = 50 * (1 - CONFIDENCE)
    return np.percentile(means, [tail, 100 - tail], axis=0).T
