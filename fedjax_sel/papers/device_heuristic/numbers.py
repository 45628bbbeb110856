"""The numbers of the report on heuristic device selection: measures of a cell, comparisons, results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import Difference, at_cost, cost_to, coverage, difference, mean_over_rounds, rounds_to
from fedjax_sel.papers.device_heuristic.cells import FRACTIONS, IID, PARTITIONS, PROPOSED, name_experiment
from fedjax_sel.papers.differences import open_interval
from fedjax_sel.papers.measures import ALONG, list_results, measure_once, to_floats
from fedjax_sel.papers.paper import Evidence, Histories, Result, join
from fedjax_sel.papers.published import read_published

CLASSES = 3
TARGET = 0.9
COSTS = {"seconds": "s", "joules": "J"}

PUBLISHED: dict[tuple[float, str, str], float] = {
    (row["epsilon"], row["method"], row["metric"]): row["value"]
    for row in read_published("fedjax_sel.papers.device_heuristic")
}
"""The thesis's numbers by fraction, method and measure."""

OURS = "ours"
"""The source of a claim that the thesis does not make."""

MARGIN = 0.01
"""Accuracies closer than this are called equal."""

NOTICED = 0.001
"""An advantage in accuracy of at most this is negligible."""


@measure_once
def measure(history: History) -> dict[str, np.ndarray]:
    """Returns the measures of one cell, with one number per seed."""
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


def list_all_results(scale: str, evidence: Evidence) -> list[Result]:
    """Returns every measure of every cell, accuracy along the way, and the optimality of the solvers."""
    out = list_results(evidence.histories, lambda _, history: measure(history), find_published, ALONG)
    return out + join(lambda: list_solver_results(evidence.studies["solvers"]["optimality"]))


def list_solver_results(rows: Iterable[Mapping[str, Any]]) -> Iterator[Result]:
    """Yields the optimality of the solvers."""
    for row in rows:
        experiment = f"solvers, N={row['N']}, epsilon={row['epsilon']:g}"
        for metric in ("share_optimal", "mean_gap", "worst_gap"):
            yield Result(experiment, row["solver"], metric, None, to_floats(row[metric]))


def find_published(experiment: str, method: str, metric: str) -> float | None:
    """Returns the source's number; as it does not give its partition, it is compared with IID."""
    by_name = {name_experiment(IID, epsilon): epsilon for epsilon in FRACTIONS}
    return PUBLISHED.get((by_name.get(experiment, 0.0), method, metric))


def compare(first: History, second: History, metric: str) -> Difference:
    """Returns `first - second` of a measure."""
    return difference(measure(first)[metric], measure(second)[metric])


def list_experiments(histories: Histories, epsilons: Iterable[float] = (0.75, 0.5), partitions=PARTITIONS) -> list[str]:
    """Returns the experiments with these fractions."""
    wanted = [name_experiment(partition, epsilon) for partition in partitions for epsilon in epsilons]
    return [experiment for experiment in wanted if (experiment, PROPOSED) in histories]


def compare_with_other(
    histories: Histories, other: str, metric: str, epsilons: Iterable[float] = (0.75, 0.5)
) -> dict[str, Difference]:
    """Returns the proposed algorithm's measure minus another method's, by experiment."""
    return {
        experiment: compare(histories[experiment, PROPOSED], histories[experiment, other], metric)
        for experiment in list_experiments(histories, epsilons)
    }


def compare_at_equal_cost(
    first: History, second: History, cost: str, budget: Float[np.ndarray, "R"]
) -> tuple[Difference, int]:
    """Returns the accuracy of `first` minus that of `second` after spending a budget each, and a number of seeds.

    A run that cannot pay its first round from the budget has learnt nothing, and counts with accuracy `1/C`; the number
    is that of the seeds in which this holds for either. A run that never spends the budget counts as it ends.

    Args:
      first, second: over the same seeds.
      cost: what is spent.
      budget: of each seed.
    """
    reached = np.stack([at_cost(one["accuracy"], one.cumulative(cost), budget) for one in (first, second)])
    filled = np.where(np.isnan(reached), 1 / CLASSES, reached)
    return difference(*filled), int(np.isnan(reached).any(0).sum())


def compare_costs(first: History, second: History, cost: str, *, to_target: bool) -> Difference:
    """Returns how many decades more `second` spends than `first`, to the target or per round.

    A run that never reaches the target counts as reaching it in the round after the last; the interval is open on
    the side on which only a lower bound of its cost is known.
    """
    spent, missed = [], []
    for history in (first, second):
        value, a_round = measure(history), history.cumulative(cost)[:, -1] / history.rounds
        reached = value[f"{cost}_to_{TARGET}"]
        spent.append(np.where(np.isfinite(reached), reached, a_round * (history.rounds + 1)) if to_target else a_round)
        missed.append(to_target and not np.isfinite(reached).all())
    return open_interval(
        difference(np.log10(spent[1]), np.log10(spent[0])), first_missed=missed[1], second_missed=missed[0]
    )


def compare_runs(first: History, second: History) -> dict[str, float]:
    """Returns how far apart two runs are: the share of rounds with the same cohort, and differences."""
    one, other = (np.sort(history.selections, axis=-1) for history in (first, second))
    return {
        "rounds with the same cohort": float((one == other).all(-1).mean()) if one.shape == other.shape else 0.0,
        "mean difference of accuracy": float(np.abs(first["accuracy"] - second["accuracy"]).mean()),
        "largest difference of loss": float(np.abs(first["loss"] - second["loss"]).max()),
    }


def select_rows(study: Mapping[str, Any], solver: str, *, epsilon: float) -> list[dict[str, Any]]:
    """Returns one solver's rows on optimality."""
    return [row for row in study["optimality"] if row["solver"] == solver and row["epsilon"] == epsilon]


def select_seconds(study: Mapping[str, Any], solver: str, wanted: str) -> dict[int, float]:
    """Returns the seconds per call by `N`."""
    return {row["N"]: row["seconds"] for row in study["times"] if (row["solver"], row["wanted"]) == (solver, wanted)}
