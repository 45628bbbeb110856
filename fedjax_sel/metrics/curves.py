"""Numbers read off learning curves, one per seed.

A seed that diverged has no values from then on, so only those before count; `History.last` is NaN for it. All raise
`ValueError` if a curve has no row for each seed, or what belongs to it has another shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Real


def check_curve(what: str, curve: Any, like: Any = None) -> np.ndarray:
    """Returns a curve as an array; raises `ValueError` if it has no row for each seed, or not the shape of `like`."""
    curve = np.asarray(curve)
    if curve.ndim != 2:
        raise ValueError(f"{what} has the shape {curve.shape}; it must have a row a seed, as history['accuracy'] does")
    if like is not None and curve.shape != np.shape(like):
        raise ValueError(f"{what} has the shape {curve.shape}, and the curve {np.shape(like)}; they must be the same")
    return curve


def fill_missing(curve: Float[np.ndarray, "R T"]) -> Float[np.ndarray, "R T"]:
    """Returns the curve with each missing value replaced by the last value before it; NaN before the first.

    >>> fill_missing(np.array([[np.nan, 1.0, np.nan, 2.0]]))
    array([[nan,  1.,  1.,  2.]])
    """
    curve = check_curve("curve", curve)
    seen = np.where(np.isnan(curve), -1, np.arange(curve.shape[1]))
    last = np.maximum.accumulate(seen, axis=1)
    return np.where(last < 0, np.nan, np.take_along_axis(curve, np.maximum(last, 0), axis=1))


CLOSE = 5e-7
"""A value this far below a target has reached it: with float32, 8000 of 10,000 correct are 0.79999995."""


def rounds_to(curve: Float[np.ndarray, "R T"], target: float) -> Int[np.ndarray, "R"]:
    """Returns the first round (from 1) whose value is at least `target`; `T + 1`, a lower bound, if none is.

    >>> rounds_to(np.array([[0.1, 0.5, 0.4], [0.1, 0.2, 0.3]]), 0.4)
    array([2, 4])
    """
    curve = check_curve("curve", curve)
    if np.ndim(target) or np.isnan(np.asarray(target, np.float64)):
        raise ValueError(f"target is {target}; it must be a number")
    bound = target if np.isinf(target) else target - CLOSE * abs(target)
    reached = np.nan_to_num(np.asarray(curve, np.float64), nan=-np.inf) >= bound
    return np.where(reached.any(1), reached.argmax(1) + 1, curve.shape[1] + 1)


def cost_to(curve: Float[np.ndarray, "R T"], cost: Float[np.ndarray, "R T"], target: float) -> Float[np.ndarray, "R"]:
    """Returns the running cost at the first round whose value is at least `target`; infinite if none is.

    >>> cost_to(np.array([[0.1, 0.5], [0.1, 0.2]]), np.array([[10.0, 20.0], [10.0, 20.0]]), 0.4)
    array([20., inf])
    """
    curve, cost = check_curve("curve", curve), check_curve("cost", cost, curve)
    first = rounds_to(curve, target)
    within = np.minimum(first, curve.shape[1]) - 1
    return np.where(first <= curve.shape[1], np.take_along_axis(cost, within[:, None], axis=1)[:, 0], np.inf)


ROUNDING = 1e-6
"""Costs that differ by less, relative to them, are equal: seconds and joules of a round are sums of float32 numbers."""


def is_within(cost: Real[np.ndarray, "..."], budget: Real[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Returns whether each cost is at most the budget, but for rounding.

    >>> is_within(np.array([30.0, 30.000001, 30.001]), np.array(30.0))
    array([ True,  True, False])
    """
    return cost <= budget * (1 + ROUNDING)


def leaves_some(cost: Real[np.ndarray, "..."], budget: Real[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Returns whether each cost is below the budget by more than rounding.

    >>> leaves_some(np.array([30.0, 29.999999, 29.999]), np.array(30.0))
    array([False, False,  True])
    """
    return cost < budget * (1 - ROUNDING)


def at_cost(
    curve: Float[np.ndarray, "R T"], cost: Float[np.ndarray, "R T"], budget: Float[np.ndarray, "R"]
) -> Float[np.ndarray, "R"]:
    """Returns the value after the last round whose running cost is within `budget`; NaN if the first costs more.

    >>> at_cost(np.array([[0.5, 0.7, 0.8]]), np.array([[10.0, 20.0, 30.0]]), np.array([25.0]))
    array([0.7])
    """
    curve, cost = check_curve("curve", curve), check_curve("cost", cost, curve)
    budget = np.asarray(budget)
    if budget.shape != (len(curve),):
        raise ValueError(f"budget has the shape {budget.shape}; it must be one number a seed, of {len(curve)}")
    paid = is_within(cost, budget[:, None]).sum(1)
    value = np.take_along_axis(fill_missing(curve), np.maximum(paid - 1, 0)[:, None], axis=1)[:, 0]
    return np.where(paid > 0, value, np.nan)


def mean_over_rounds(curve: Float[np.ndarray, "R T"]) -> Float[np.ndarray, "R"]:
    """Returns the mean of the evaluated rounds: the area under the curve, divided by their number.

    >>> mean_over_rounds(np.array([[0.5, np.nan, 0.75]]))
    array([0.625])
    """
    return np.nanmean(check_curve("curve", curve), axis=1)


def last_mean(curve: Float[np.ndarray, "R T"], count: int = 10) -> Float[np.ndarray, "R"]:
    """Returns the mean of the last `count` evaluated rounds.

    >>> last_mean(np.array([[0.1, 0.5, np.nan, 0.75]]), count=2)
    array([0.625])
    """
    if count < 1:
        raise ValueError(f"count is {count}; it must be at least 1")
    return np.array([row[~np.isnan(row)][-count:].mean() for row in check_curve("curve", curve)])
