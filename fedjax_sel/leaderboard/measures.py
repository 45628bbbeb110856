"""Measures of a finished run: accuracy under budgets, costs, participation; one number per seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fedjax_sel.engine.history import History
from fedjax_sel.leaderboard.cells import Cell
from fedjax_sel.leaderboard.scales import BUDGETS
from fedjax_sel.leaderboard.selectors import BASELINE
from fedjax_sel.metrics import at_cost, coverage, fill_missing, jain, mean_over_rounds, rounds_to
from fedjax_sel.metrics.curves import leaves_some
from fedjax_sel.metrics.labels import cohort_divergence
from fedjax_sel.papers.measures import settle
from fedjax_sel.report.budgets import Budget, extrapolate_cost, find_limit, running_cost

ACCURACY, ROUNDS_TO = "accuracy", "rounds to target"
COSTS = ("bytes", "flops", "seconds", "joules")
SELECTION = {"bytes": ("selection_bytes_down", "selection_bytes_up"), "flops": ("selection_flops",)}
"""The metrics that make up selection's part of a cost."""

OF_CLIENTS = {
    "mean over clients": "client_accuracy_mean",
    "worst decile of clients": "client_accuracy_worst_decile",
    "spread over clients": "client_accuracy_spread",
}
"""Accuracies of the last model on every client's own examples: the history's metrics, by name of the measure."""

CHOICE = "microseconds a choice"

Rows = list[tuple[str, str, Float[np.ndarray, "R"], Any]]
"""Rows of a measure, a budget, its values, and whether they are censored, one per seed."""


def measure_under(history: History, baseline: History, budget: Budget) -> tuple[np.ndarray, np.ndarray]:
    """Returns accuracy under a budget, and whether the run ended before it had spent the budget.

    The accuracy is that of the last evaluation within the budget. If there is none, nothing was learnt, and the
    accuracy is that of guessing, `1 / C`, as after a seed has diverged (`settle`). For a run that ended before, it is
    that after all its rounds; what it would have reached with the rest of the budget is not known.
    """
    limit, cost = find_limit(baseline, budget), running_cost(history, budget.kind)
    found = at_cost(settle(history), cost, limit)
    guessing = 1 / history.about["classes"]
    ended = leaves_some(cost[:, -1], limit) & (history.diverged == 0)
    return np.where(np.isnan(found), guessing, found), ended


def find_target(baseline: History) -> float:
    """Returns the target accuracy: the baseline's after half of its rounds, as the median over its seeds.

    It is NaN where the baseline was not evaluated by then.
    """
    return float(np.median(fill_missing(settle(baseline))[:, baseline.rounds // 2 - 1]))


def measure(history: History, baseline: History, labels: Int[np.ndarray, "R N C"]) -> Rows:
    """Returns all measures of a run.

    Args:
      history: the history of the run.
      baseline: that of the baseline with the same seeds on the same federation.
      labels: the number of each client's examples in each class, by seed.
    """
    go_on = partial(extrapolate_cost, diverged=history.diverged)
    out: Rows = []
    for budget in BUDGETS:
        if budget.share * baseline.rounds > history.rounds:  # a variant whose runs are shorter
            continue
        if budget.kind == "rounds" or budget.kind in baseline:
            out.append((ACCURACY, budget.name, *measure_under(history, baseline, budget)))
    target = find_target(baseline)
    first = rounds_to(history["accuracy"], np.inf if np.isnan(target) else target).astype(float)
    out.append((ROUNDS_TO, "", np.minimum(first, history.rounds), first > history.rounds))
    out.append(("area under the curve", "", mean_over_rounds(settle(history)), False))
    for kind in COSTS:
        if kind in history:
            out.append((f"{kind} of the run", "", go_on(running_cost(history, kind)), False))
    for kind, parts in SELECTION.items():
        out.append((f"selection {kind}", "", go_on(history.cumulative(*parts)), False))
    out += measure_participation(history, labels)
    guessing = {name: 0.0 if name.startswith("spread") else 1 / history.about["classes"] for name in OF_CLIENTS}
    for name, of in OF_CLIENTS.items():
        if of in history:
            out.append((name, "", np.where(history.diverged > 0, guessing[name], history[of][:, -1]), False))
    return out


def measure_participation(history: History, labels: Int[np.ndarray, "R N C"]) -> Rows:
    """Returns how many clients were selected and how evenly, and their labels and numbers of examples."""
    cohorts = history.selections
    there, examples = cohorts >= 0, labels.sum(2)
    sizes = np.take_along_axis(examples[:, None, :], np.where(there, cohorts, 0), axis=2) * there
    selected = np.maximum(there.sum((1, 2)), 1)
    apart = cohort_divergence(cohorts, labels)
    return [
        ("coverage", "", coverage(cohorts, history.num_clients)[:, -1], False),
        ("Jain's index", "", jain(np.maximum(history.counts(), 0)) if there.any() else np.zeros(len(cohorts)), False),
        ("label divergence", "", mean_or_nan(apart), False),
        ("relative size", "", sizes.sum((1, 2)) / selected / examples.mean(1), False),
    ]


def mean_or_nan(values: Float[np.ndarray, "R T"]) -> Float[np.ndarray, "R"]:
    """Returns the mean of each seed's values that are not NaN, or NaN if there are none."""
    there = ~np.isnan(values)
    total = np.where(there, values, 0).sum(1)
    return np.where(there.any(1), total / np.maximum(there.sum(1), 1), np.nan)


COLUMNS = ("federation", "selector", "seed", "measure", "budget", "value", "censored")


def build_tidy(cells: Sequence[Cell], labels: dict[str, Int[np.ndarray, "R N C"]]) -> pd.DataFrame:
    """Returns the long table, with `COLUMNS`, of all finished cells whose baseline is finished; one number per row."""
    finished = {(cell.federation, cell.selector): cell.history for cell in cells if cell.history is not None}
    tables = []
    for (federation, selector), history in finished.items():
        baseline = finished.get((federation, BASELINE))
        if baseline is None:
            continue
        for name, budget, value, censored in measure(history, baseline, labels[federation]):
            seeds = np.asarray(history.seeds)
            late = np.broadcast_to(censored, seeds.shape)
            columns = (federation, selector, seeds, name, budget, np.asarray(value, float), late)
            tables.append(pd.DataFrame(dict(zip(COLUMNS, columns, strict=True))))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=pd.Index(COLUMNS))
