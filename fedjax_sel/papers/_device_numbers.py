"""The numbers of the report on heuristic device selection: measures of a cell, comparisons, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import Difference, all_of, at_cost, cost_to, coverage, difference, mean_over_rounds, rounds_to
from fedjax_sel.papers._paper import Evidence, Result

PROPOSED, SET, RANDOM, ALL = "Proposed Algorithm", "Set-Based Method", "Random Selection", "All Devices"
ONLY = {
    "Compute Only": "alpha",
    "Energy Only": "beta",
    "Memory Only": "gamma",
    "Network Only": "delta",
}
"""H with one property alone, and the weight that is left."""

DEVICES = 30
CLASSES = 3
IID, SKEWED = "IID", "Dirichlet(0.3)"
PARTITIONS = (IID, SKEWED)
FRACTIONS = (1.0, 0.75, 0.5)
TENTH = 0.1
"""A fraction beyond the source: three devices."""

TARGET = 0.9
COSTS = {"seconds": "s", "joules": "J"}

PUBLISHED: dict[tuple[float, str, str], float] = {
    (1.0, SET, "final_accuracy"): 0.90,
    (1.0, SET, "final_loss"): 0.21,
    (1.0, PROPOSED, "final_accuracy"): 0.9233,
    (1.0, PROPOSED, "final_loss"): 0.16,
    (0.5, SET, "final_accuracy"): 0.899,
    (0.5, SET, "final_loss"): 0.21,
    (0.5, PROPOSED, "final_accuracy"): 0.90,
    (0.5, PROPOSED, "final_loss"): 0.27,
    (1.0, ALL, "final_accuracy"): 0.90,
}
"""Table 5.1 by fraction, method and measure; and of the conclusion, "90% when all devices are selected"."""


OURS = "ours"
"""The source of a claim that the thesis does not make."""


def named(partition: str, epsilon: float, change: str = "") -> str:
    """What an experiment is called."""
    return f"{partition}, epsilon={epsilon:g}" + (f", {change}" if change else "")


def measures(history: History) -> dict[str, np.ndarray]:
    """Numbers a seed of one cell."""
    accuracy, loss = np.round(history["accuracy"].astype(np.float64), 6), history["loss"]
    out = {
        "final_accuracy": accuracy[:, -1],
        "final_loss": loss[:, -1],
        "mean_accuracy": mean_over_rounds(accuracy),
        f"rounds_to_{TARGET}": rounds_to(accuracy, TARGET),
        "coverage": coverage(history.selections, history.num_clients)[:, -1],
    }
    for cost in COSTS:
        spent = history.cumulative(cost)
        out |= {cost: spent[:, -1], f"{cost}_to_{TARGET}": cost_to(accuracy, spent, TARGET)}
    return out


def results(scale: str, evidence: Evidence) -> list[Result]:
    """Every measure of every cell, accuracy along the way, and the optimality of the solvers."""
    out = []
    for (experiment, method), history in evidence.histories.items():
        for share in (0.1, 0.2, 0.5, 1.0):
            t = max(1, round(share * history.rounds))
            out.append(Result(experiment, method, "accuracy", t, floats(history["accuracy"][:, t - 1])))
        for metric, value in measures(history).items():
            out.append(Result(experiment, method, metric, None, floats(value), published(experiment, method, metric)))
    for row in evidence.studies["solvers"]["optimality"]:
        experiment = f"solvers, N={row['N']}, epsilon={row['epsilon']:g}"
        for metric in ("share_optimal", "mean_gap", "worst_gap"):
            out.append(Result(experiment, row["solver"], metric, None, floats(row[metric])))
    return out


def floats(values: Iterable[Any]) -> tuple[float, ...]:
    """Plain numbers."""
    return tuple(map(float, values))


def published(experiment: str, method: str, metric: str) -> float | None:
    """The source's number; it does not say how the rows are divided, and is compared with IID."""
    by_name = {named(IID, epsilon): epsilon for epsilon in FRACTIONS}
    return PUBLISHED.get((by_name.get(experiment, 0.0), method, metric))


def compared(first: History, second: History, metric: str) -> Difference:
    """`first - second` of a measure."""
    return difference(measures(first)[metric], measures(second)[metric])


def at_equal_cost(first: History, second: History, cost: str) -> Difference:
    """Final accuracy of `first`, minus that of `second` when it has spent as much as `first` in its whole run.

    Where that does not even pay for its first round, it has not learnt anything: accuracy `1/C`.
    """
    budget = first.cumulative(cost)[:, -1]
    reached = at_cost(second["accuracy"], second.cumulative(cost), budget)
    return difference(first["accuracy"][:, -1], np.where(np.isnan(reached), 1 / CLASSES, reached))


def times_the_cost(first: History, second: History, cost: str, *, to_target: bool) -> dict[str, float]:
    """How many times as much `second` spends as `first`: geometric mean over seeds, with its 95 % interval.

    To the target, or a round where that is not asked for. A run that never reaches the target counts as reaching it in
    the round after the last.
    """
    spent = []
    for history in (first, second):
        total = history.cumulative(cost)
        one_more = total[:, -1] * (1 + 1 / history.rounds)
        reached = cost_to(history["accuracy"], total, TARGET)
        spent.append(np.where(np.isfinite(reached), reached, one_more) if to_target else total[:, -1] / history.rounds)
    d = difference(np.log10(spent[1]), np.log10(spent[0]))
    return {"factor": 10**d.mean, "low": 10**d.low, "high": 10**d.high}


def same_runs(first: History, second: History) -> dict[str, float]:
    """How far apart two runs are: the share of rounds with the same cohort, and differences."""
    one, other = (np.sort(history.selections, axis=-1) for history in (first, second))
    return {
        "rounds with the same cohort": float((one == other).all(-1).mean()) if one.shape == other.shape else 0.0,
        "mean difference of accuracy": float(np.abs(first["accuracy"] - second["accuracy"]).mean()),
        "largest difference of loss": float(np.abs(first["loss"] - second["loss"]).max()),
    }


def examples_of(study: Mapping[str, Any], solver: str, *, epsilon: float, n: int | None = None) -> list[dict[str, Any]]:
    """The lines on optimality of one solver."""
    return [
        row
        for row in study["optimality"]
        if row["solver"] == solver and row["epsilon"] == epsilon and n in (None, row["N"])
    ]


def seconds_of(study: Mapping[str, Any], solver: str, wanted: str) -> dict[int, float]:
    """Seconds of a call by `N`."""
    return {row["N"]: row["seconds"] for row in study["times"] if (row["solver"], row["wanted"]) == (solver, wanted)}


def judged(differences: Mapping[str, Difference], judge: Callable[[Difference], str]) -> str:
    """One verdict on a claim about several settings."""
    return all_of([judge(d) for d in differences.values()])


def plain(differences: Mapping[str, Difference]) -> dict[str, Any]:
    """For a claim's statistic."""
    return {name: {**vars(d)} for name, d in differences.items()}
