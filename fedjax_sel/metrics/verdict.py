"""From two methods' numbers over the same seeds to a verdict on what a paper says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Real
from scipy import stats

REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"


@dataclass(frozen=True)
class Difference:
    """Paired difference of two methods over seeds.

    Attributes:
      mean: over seeds.
      low, high: 95 % interval of the mean, by Student's t.
      share: of the seeds in which the difference is not negative.
      seeds: how many.
    """

    mean: float
    low: float
    high: float
    share: float
    seeds: int

    def larger(self, negligible: float = 0.0) -> str:
        """Verdict on "the first is larger".

        Reproduced where the whole interval is above 0; not reproduced where it is below `negligible`, so that at most
        an advantage nobody would notice is left; undecided between.
        """
        if self.low > 0:
            return REPRODUCED
        return NOT_REPRODUCED if self.high <= negligible else UNDECIDED

    def not_smaller(self) -> str:
        """Verdict on "the first is at least the second": the whole interval lies at 0 or above, or below 0."""
        if self.low >= 0:
            return REPRODUCED
        return NOT_REPRODUCED if self.high < 0 else UNDECIDED

    def comparable(self, margin: float) -> str:
        """Verdict on "they are about equal": the interval lies inside, or outside, ±margin."""
        if -margin < self.low and self.high < margin:
            return REPRODUCED
        return NOT_REPRODUCED if self.low > margin or self.high < -margin else UNDECIDED


def difference(first: Real[np.ndarray, "R"], second: Real[np.ndarray, "R"]) -> Difference:
    """`first - second`, seed by seed.

    With one seed, or none that differ, there is no spread to judge by: the interval is then everything, or a point.

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
    """Verdict on a claim about several settings: reproduced if it is in each, not reproduced if it fails in one.

    Undecided where there are none.
    """
    if verdicts and all(v == REPRODUCED for v in verdicts):
        return REPRODUCED
    return NOT_REPRODUCED if NOT_REPRODUCED in verdicts else UNDECIDED
