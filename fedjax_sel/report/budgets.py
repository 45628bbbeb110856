"""Runs under one budget: what they have reached when each seed has spent as much as that of a reference run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedjax_sel.catalog import check_name
from fedjax_sel.engine.history import TOTALS, History
from fedjax_sel.metrics.curves import is_within, leaves_some
from fedjax_sel.report.compare import is_cost
from fedjax_sel.report.quantities import format_count

KINDS = ("rounds", "bytes", "flops", "seconds", "joules")
"""What a budget can limit."""


@dataclass(frozen=True)
class Budget:
    """A limit on every run's spending: what the reference with the same seed spends in a share of its rounds.

    Attributes:
      kind: a total of `History` (`bytes`, `flops`), `seconds`, `joules`, or `rounds`.
      share: the share of the reference's rounds.
    """

    kind: str
    share: float

    @property
    def name(self) -> str:
        """Its name in tables.

        >>> Budget("bytes", 0.5).name
        'bytes, 50 %'
        """
        return f"{self.kind}, {100 * self.share:g} %"


def read_budget(text: str) -> Budget:
    """Returns the budget that is given as `KIND=SHARE`.

    Raises:
      ValueError: the kind is unknown, or the share is not above 0 and at most 1.

    >>> read_budget("bytes=0.5")
    Budget(kind='bytes', share=0.5)
    """
    kind, _, share = text.partition("=")
    check_name("budget", kind, KINDS)
    try:
        number = float(share)
    except ValueError:
        number = math.nan
    if not 0 < number <= 1:
        raise ValueError(f"the budget is {text!r}; give a share above 0 and at most 1, as in {kind}=0.5")
    return Budget(kind, number)


def running_cost(history: History, kind: str) -> Float[np.ndarray, "R T"]:
    """Returns the cumulative cost of a run after each round, including the cost of selection.

    Raises:
      KeyError: the run has no such cost.
    """
    if kind == "rounds":
        return np.broadcast_to(np.arange(1.0, history.rounds + 1), (len(history.seeds), history.rounds))
    return history.cumulative(kind)


def find_limit(reference: History, budget: Budget) -> Float[np.ndarray, "R"]:
    """Returns the limit of a budget for each seed: the reference's cost, with the same seed, at its share of rounds.

    If the reference diverged before that in a seed, its spending is extrapolated at the rate that it had until then.
    """
    spent = running_cost(reference, budget.kind)[:, : count_rounds(reference, budget)]
    return spent[:, -1] if budget.kind == "rounds" else extrapolate_cost(spent, reference.diverged)


def count_rounds(reference: History, budget: Budget) -> int:
    """Returns the number of rounds of the reference that a budget's share is: the nearest, and at least one."""
    return max(1, round(budget.share * reference.rounds))


def extrapolate_cost(spent: Float[np.ndarray, "R T"], diverged: Int[np.ndarray, "R"]) -> Float[np.ndarray, "R"]:
    """Returns what seeds would have spent in all rounds if those that diverged had gone on spending at the same rate.

    The first round may have costs that do not recur, such as those of a phase before it; it counts once, unless the
    seed diverged in it.

    Args:
      spent: until each round.
      diverged: the round in which each seed diverged, from 1; 0: it did not.
    """
    rounds = spent.shape[1]
    ended, several = (diverged > 0) & (diverged < rounds), diverged > 1
    first = np.where(several, spent[:, 0], 0.0)
    rate = (spent[:, -1] - first) / np.where(ended, diverged - several, 1)
    return np.where(ended, first + rate * (rounds - several), spent[:, -1])


def limit_runs(
    runs: Mapping[str, tuple[History, Any]], budget: Budget, metric: str | None = None
) -> tuple[dict[str, tuple[History, Any]], list[str]]:
    """Returns runs as they are when the first one's budget is spent, and lines on what could not be limited.

    A run keeps the seeds that the first one has, too, and in which it was evaluated, or diverged, within the budget.

    Args:
      runs: the runs, by name.
      budget: of the first run.
      metric: what is compared; None, or a cost: `headline` says whether a run was evaluated.

    Raises:
      ValueError: a run does not have this cost, has no seed of the first one, or was evaluated within the budget in no
        seed.
    """
    reference = next(iter(runs.values()))[0]
    for name, (history, _) in runs.items():
        if budget.kind != "rounds" and budget.kind not in history:
            raise ValueError(
                f"{name} has no {budget.kind}, as its clients have no devices; give bytes, flops or rounds"
            )
    limit = dict(zip(reference.seeds, find_limit(reference, budget), strict=True))
    out, said = {}, []
    for number, (name, (history, about)) in enumerate(runs.items(), start=1):
        if not set(history.seeds) & limit.keys():
            raise ValueError(f"{name} has no seed of run 1, whose seeds have the budget; leave it out, or add seeds")
        seen = history.headline if metric is None or is_cost(metric) else metric
        history = take_without_models(history, [seed in limit for seed in history.seeds])
        limits = np.array([limit[seed] for seed in history.seeds])
        cost = running_cost(history, budget.kind)
        ended = leaves_some(cost[:, -1], limits) & (history.diverged == 0)
        if ended.any():
            said.append(
                f"{number} spent less than the budget in {format_count(int(ended.sum()), 'seed')}; what it would have "
                "reached is not known, and it counts with what it reached"
            )
        affordable = is_within(cost, limits[:, None])
        within = affordable & (history["alive"] > 0)
        history = hide_beyond(history, ~affordable)
        measured = ~np.isnan(history[seen]).all(axis=1)
        kept = measured | (history.diverged > 0)  # a seed that diverged before it was evaluated is named as such
        if not kept.any():
            raise ValueError(
                f"{name} has no {seen} within {budget.name} of run 1 in any seed that both have; give a larger share"
            )
        if not kept.all():
            seeds = format_count(int((~kept).sum()), "seed")
            said.append(
                f"{number} has no {seen} within the budget in {seeds}, left out here; its mean is over the others, in "
                "which it may have spent less a round"
            )
        if measured.any() and (lags := find_lags(history[seen][measured], within[measured])):
            said.append(
                f"{number} was last evaluated {lags} before its budget was spent: what it had reached is of then, what "
                "it cost is of the whole budget; evaluate_every=1 is exact"
            )
        out[name] = take_without_models(history, kept), about
    return out, said


def find_lags(curve: Float[np.ndarray, "R T"], within: Bool[np.ndarray, "R T"]) -> str:
    """Returns how many rounds before the budget was spent each seed was last evaluated, as text; "" if 0 for all.

    Args:
      curve: what is evaluated; NaN in rounds without an evaluation.
      within: which rounds are within the budget, before a seed diverges.

    >>> curve = np.array([[0.1, np.nan, np.nan, np.nan], [0.1, 0.2, np.nan, 0.4]])
    >>> find_lags(curve, np.arange(4) < np.array([[3], [2]]))
    '0 to 2 rounds'
    """
    last = np.where(within, np.arange(curve.shape[1]), -1).max(1)
    evaluated = np.where(within & ~np.isnan(curve), np.arange(curve.shape[1]), -1).max(1)
    low, high = (int(bound) for bound in ((last - evaluated).min(), (last - evaluated).max()))
    if not high:
        return ""
    return format_count(high, "round") if low == high else f"{low} to {format_count(high, 'round')}"


def keep_common_rounds(history: History, metric: str) -> History:
    """Returns a history without the values of rounds that are within the budget in some of its finite seeds only.

    A median over fewer and fewer seeds is no curve. Rounds after the last that cost anything are beyond the budget.
    """
    values = history[metric]
    if is_cost(metric):
        spends = np.arange(history.rounds) * (history["bytes"] + history["flops"] > 0)
        values = np.where(np.arange(history.rounds) > spends.max(1, keepdims=True), np.nan, values)
    known = ~np.isnan(values[history.diverged == 0])
    hidden = np.isnan(values) | (known.any(0) & ~known.all(0))
    shown = {name: np.where(hidden, np.nan, history[name]) for name in TOTALS.get(metric, (metric,))}
    return replace(history, metrics={**history.metrics, **shown})


def hide_beyond(history: History, beyond: np.ndarray) -> History:
    """Returns a history in which what is measured in these rounds is NaN, and what they cost 0.

    Args:
      history: the history.
      beyond: which rounds of each seed, Bool[R, T].
    """

    def hide(name: str, values: np.ndarray) -> np.ndarray:
        if np.shape(values) != beyond.shape:
            return values
        if name == "alive":  # what comes later does not count
            return np.where(beyond, 1, values)
        return np.where(beyond, 0 if is_cost(name) else np.nan, values)

    return replace(history, metrics={name: hide(name, values) for name, values in history.metrics.items()})


def take_without_models(history: History, which: Any) -> History:
    """Returns the part of a history that belongs to the seeds for which `which` is true, without models."""
    return replace(history, variables=None, personal=()).take(np.flatnonzero(which))
