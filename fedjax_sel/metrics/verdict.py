"""Verdicts on a paper's claims about two methods, from their results over the same seeds."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy
from jaxtyping import Real

REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"


@dataclass(frozen=True)
class Difference:
    """The paired difference of two methods over seeds.

    Attributes:
      mean: over seeds.
      low, high: 95 % interval of the mean, by Student's t.
      share: of the seeds in which the difference is not negative.
      seeds: how many.
      values: the difference of each seed; empty where only the interval is known.

    >>> Difference(mean=0.02, low=-0.01, high=0.05, share=0.8, seeds=5).larger()
    'undecided'
    """

    mean: float
    low: float
    high: float
    share: float
    seeds: int
    values: tuple[float, ...] = field(default=(), repr=False, compare=False)

    def larger(self, negligible: float = 0.0) -> str:
        """Returns the verdict on "the first is larger".

        Reproduced if the whole interval is above 0; not reproduced if the interval ends at or below `negligible`, which
        leaves no advantage above that; else undecided.
        """
        if self.low > 0:
            return REPRODUCED
        return NOT_REPRODUCED if self.high <= negligible else UNDECIDED

    def not_smaller(self) -> str:
        """Returns the verdict on "the first is at least the second": the interval is at 0 or above, or below 0."""
        if self.low >= 0:
            return REPRODUCED
        return NOT_REPRODUCED if self.high < 0 else UNDECIDED

    def comparable(self, margin: float) -> str:
        """Returns the verdict on "they are about equal": the whole interval is inside, or outside, ±margin."""
        if -margin < self.low and self.high < margin:
            return REPRODUCED
        return NOT_REPRODUCED if self.low > margin or self.high < -margin else UNDECIDED

    def not_below(self, margin: float) -> str:
        """Returns the verdict on "the first is at most `margin` below the second".

        Reproduced if the whole interval is above -margin; not reproduced if it is below; else undecided.
        """
        if self.low > -margin:
            return REPRODUCED
        return NOT_REPRODUCED if self.high < -margin else UNDECIDED

    def p_above(self, bound: float = 0.0, *, or_at: bool = False) -> float:
        """Returns the one-sided p-value of a mean above `bound`: below 0.025 if the interval lies above it.

        Args:
          bound: with which the mean is compared.
          or_at: whether a mean of exactly `bound` without spread counts as above it.
        """
        return compute_p(self.mean - bound, self.mean - self.low, self.seeds, or_at)

    def p_below(self, bound: float = 0.0, *, or_at: bool = False) -> float:
        """Returns the one-sided p-value of a mean below `bound`; see `p_above`."""
        return compute_p(bound - self.mean, self.high - self.mean, self.seeds, or_at)

    def p_apart(self) -> float:
        """Returns the two-sided p-value of a mean other than 0, of the paired t test; NaN if there is no mean.

        >>> d = difference(np.array([1.0, 2.0, 3.0]), np.zeros(3))
        >>> round(d.p_apart(), 4), difference(np.ones(2), np.ones(2)).p_apart()
        (0.0742, 1.0)
        """
        return np.nan if np.isnan(self.mean) else min(1.0, 2 * min(self.p_above(), self.p_below()))


def compute_p(distance: float, reach: float, seeds: int, or_at: bool) -> float:
    """Returns the one-sided p-value of a mean that lies `distance` beyond a bound, by Student's t.

    Args:
      distance: of the mean, positive beyond the bound.
      reach: half of the mean's 95 % interval on the side of the bound; if infinite or NaN, nothing is known, and p is
        1.
      seeds: number of seeds of the mean.
      or_at: whether a distance of 0 with a reach of 0 counts as beyond.
    """
    if not np.isfinite(distance) or not np.isfinite(reach):
        return 1.0
    if reach <= 0:
        return 0.0 if distance > 0 or (or_at and distance == 0) else 1.0
    freedom = seeds - 1
    return float(scipy.stats.t.sf(distance / reach * scipy.stats.t.ppf(0.975, freedom), freedom))


def adjust_holm(p: Sequence[float]) -> list[float]:
    """Returns the p-values of several tests, adjusted for their number.

    If tests with an adjusted value of at most α are rejected, the probability of any wrong rejection is at most α. The
    smallest p-value is multiplied by their number `k`, the next by `k - 1`, and so on; adjusted values keep their
    order.

    A NaN is not a test: it stays NaN and does not count.

    >>> [round(value, 3) for value in adjust_holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]

    Source: S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979, https://www.jstor.org/stable/4615733.
    """
    out, so_far = [float("nan")] * len(p), 0.0
    tests = sorted((i for i in range(len(p)) if not np.isnan(p[i])), key=lambda i: p[i])
    for rank, i in enumerate(tests):
        so_far = max(so_far, min(1.0, (len(tests) - rank) * p[i]))
        out[i] = so_far
    return out


def difference(first: Real[np.ndarray, "R"], second: Real[np.ndarray, "R"]) -> Difference:
    """Returns `first - second`, seed by seed, with the interval of its mean.

    The interval is infinite with one seed, and a point where all seeds have the same difference.

    Raises:
      ValueError: they do not have one number a seed.

    >>> difference(np.array([2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0]))
    Difference(mean=2.0, low=-0.48..., high=4.48..., share=1.0, seeds=3)
    """
    shapes = np.shape(first), np.shape(second)
    if shapes[0] != shapes[1] or len(shapes[0]) != 1 or not shapes[0][0]:
        raise ValueError(
            f"difference: the values have the shapes {shapes[0]} and {shapes[1]}; both must have one number a seed, as "
            "in history['accuracy'][:, -1]"
        )
    d = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    mean = float(d.mean())
    if len(d) == 1:
        low, high = -np.inf, np.inf
    elif np.ptp(d) == 0:
        low = high = mean
    else:
        error = d.std(ddof=1) / np.sqrt(len(d))
        low, high = (mean + quantile * error for quantile in find_quantiles(len(d) - 1))
    return Difference(mean, float(low), float(high), float((d >= 0).mean()), len(d), tuple(map(float, d)))


@functools.cache
def find_quantiles(freedom: int) -> tuple[float, float]:
    """Returns the ends of the 95 % interval of Student's t; a report asks thousands of times, and SciPy takes 1 ms."""
    return scipy.stats.t.interval(0.95, freedom)
