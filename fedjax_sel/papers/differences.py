"""Differences between methods, seed by seed: pooled over experiments, and as claims show and record them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference, difference

Differences = Mapping[str, Difference]
"""Paired differences between two methods, by experiment."""


def record_difference(d: Difference) -> dict[str, Any]:
    """Returns a difference by its seeds and open ends, or by its interval where that is all there is."""
    if not d.values:
        return describe_difference(d)
    return {"values": list(d.values), "open": [end for end in ("low", "high") if np.isinf(getattr(d, end))]}


def read_difference(recorded: Mapping[str, Any]) -> Difference:
    """Returns a recorded difference; an end that JSON cannot hold is open."""
    ends = {"low": -np.inf, "high": np.inf}
    if "values" not in recorded:
        known: dict[str, Any] = {k: ends.get(k, np.nan) if v is None else v for k, v in recorded.items()}
        return Difference(**known)
    d = difference(np.array(recorded["values"], np.float64), np.zeros(len(recorded["values"])))
    return replace(d, **{end: ends[end] for end in recorded["open"]})


def pool(differences: Differences) -> Difference:
    """Returns the mean difference over experiments, with its interval over seeds.

    A seed's value is its mean over the experiments: one seed draws the data, model and cohorts of all experiments, so
    they are not independent. If experiments have different numbers of seeds, only those that all of them have count. An
    end of the interval is open if it is open in any experiment; both are open if an experiment has no values.
    """
    several = list(differences.values())
    if len(several) == 1:
        return several[0]
    seeds = min(len(d.values) for d in several)
    if not seeds:
        return Difference(float(np.mean([d.mean for d in several])), -np.inf, np.inf, 1.0, 0)
    values = np.mean([d.values[:seeds] for d in several], axis=0)
    together = difference(values, np.zeros(seeds))
    return replace(
        together,
        low=-np.inf if any(d.low == -np.inf for d in several) else together.low,
        high=np.inf if any(d.high == np.inf for d in several) else together.high,
    )


def predict_run(d: Difference) -> Difference:
    """Returns a mean difference with the 95 % interval in which the difference of one more seed would lie.

    Where every seed has the same value and it is only a bound, as if none reaches a target, nothing is known of how
    widely seeds spread, and both ends are open.

    >>> never = difference(np.full(3, 501.0), np.full(3, 100.0))
    >>> alone = predict_run(open_interval(never, first_missed=True, second_missed=False))
    >>> alone.mean, alone.low, alone.high
    (401.0, -inf, inf)
    """
    if np.isinf(d.low) != np.isinf(d.high) and d.mean in (d.low, d.high):
        return replace(d, low=-np.inf, high=np.inf)
    wider = np.sqrt(d.seeds + 1)  # the square root of 1 + 1/n deviations, instead of that of 1/n
    return replace(d, low=d.mean - wider * (d.mean - d.low), high=d.mean + wider * (d.high - d.mean))


def negate(d: Difference) -> Difference:
    """Returns the second minus the first, by the same seeds."""
    return difference(np.zeros(d.seeds), np.array(d.values))


def open_interval(d: Difference, *, first_missed: bool, second_missed: bool) -> Difference:
    """Returns a difference of costs to a target, open on each side where a cost is only known as a lower bound.

    A run that misses the target counts as if it had reached it right after its last round.

    Args:
      d: cost of the first minus that of the second.
      first_missed, second_missed: whether any of their runs missed the target.
    """
    return replace(d, high=np.inf if first_missed else d.high, low=-np.inf if second_missed else d.low)


def describe_difference(d: Difference) -> dict[str, float]:
    """Returns a difference as a claim's statistic."""
    return {name: value for name, value in vars(d).items() if name != "values"}


def describe_differences(differences: Differences) -> dict[str, Any]:
    """Returns the differences of all experiments as a claim's statistic."""
    return {name: describe_difference(d) for name, d in differences.items()}


def describe_runs(differences: Differences) -> dict[str, Any]:
    """Returns the differences of all experiments, with the intervals of one more run (`judging.ask_as_published`)."""
    return describe_differences({name: predict_run(d) for name, d in differences.items()})


def describe_each(
    by_rival: Mapping[str, Differences], describe: Callable[[Difference], dict[str, float]] = describe_difference
) -> dict[str, Any]:
    """Returns the differences against each of several rivals, as `describe` gives them, as a claim's statistic."""
    return {
        f"{name}, against {rival}": describe(d)
        for rival, differences in by_rival.items()
        for name, d in differences.items()
    }


def pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns two measures for the seeds that both have.

    >>> pair(np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.6]))
    (array([0.1, 0.2]), array([0.5, 0.6]))
    """
    seeds = min(len(first), len(second))
    return first[:seeds], second[:seeds]


def subtract(first: np.ndarray, second: np.ndarray) -> Difference:
    """Returns first minus second over the seeds that both have."""
    return difference(*pair(first, second))


def compare_with(values: np.ndarray, bound: float) -> Difference:
    """Returns the difference between each seed's value and one number."""
    return difference(values, np.full(len(values), bound))


def compare_factor(first: np.ndarray, second: np.ndarray, times: float = 1.0) -> Difference:
    """Returns by how many decades the ratio of two positive measures, seed by seed, is above a number.

    In decades a ratio and its inverse give the same verdict.
    """
    return compare_with(np.log10(first / second), float(np.log10(times)))


def describe_factor(decades: Difference, times: float = 1.0) -> dict[str, float]:
    """Returns what `compare_factor` compared as a claim's statistic: the geometric mean ratio with its interval."""
    found = {"factor": decades.mean, "low": decades.low, "high": decades.high}
    return {name: times * 10**value if np.isfinite(value) else value for name, value in found.items()}
