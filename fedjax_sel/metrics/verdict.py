"""Verdicts on what a paper says of two methods, from their numbers over the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Real
from scipy import stats

REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"


@dataclass(frozen=True)
class Difference:
    """The paired difference of two methods over seeds.

    Attributes:
      mean: over seeds.
      low, high: 95 % interval of the mean, by Student's t.
      share: of the seeds in which the difference is not negative.
      seeds: how many.

    >>> Difference(mean=0.02, low=-0.01, high=0.05, share=0.8, seeds=5).larger()
    'undecided'
    """

    mean: float
    low: float
    high: float
    share: float
    seeds: int

    def larger(self, negligible: float = 0.0) -> str:
        """Returns the verdict on "the first is larger".

        Reproduced where the whole interval is above 0; not reproduced where the interval ends at `negligible` or below,
        so that no advantage above that is left; else undecided.
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


def difference(first: Real[np.ndarray, "R"], second: Real[np.ndarray, "R"]) -> Difference:
    """Returns `first - second`, seed by seed, with the interval of its mean.

    The interval is infinite with one seed, and a point where all seeds have the same difference.

    >>> difference(np.array([2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0]))
    Difference(mean=2.0, low=-0.48..., high=4.48..., share=1.0, seeds=3)
    """
    d = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    mean = float(d.mean())
    if len(d) == 1:
        low, high = -np.inf, np.inf
    elif np.ptp(d) == 0:
        low = high = mean
    else:
        low, high = stats.t.interval(0.95, len(d) - 1, mean, stats.sem(d))
    return Difference(mean, float(low), float(high), float((d >= 0).mean()), len(d))


def all_of(verdicts: Sequence[str]) -> str:
    """Returns the verdict on a claim about several settings: reproduced in each, or not reproduced in at least one.

    Otherwise, and where there are no settings, it is undecided.

    >>> all_of(["reproduced", "undecided"])
    'undecided'
    """
    if verdicts and all(v == REPRODUCED for v in verdicts):
        return REPRODUCED
    return NOT_REPRODUCED if NOT_REPRODUCED in verdicts else UNDECIDED
