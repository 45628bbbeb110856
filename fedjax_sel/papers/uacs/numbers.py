"""The numbers of the UACS-FL report: measures of a cell, comparisons between methods."""

from __future__ import annotations

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import (
    Difference,
    at_cost,
    cost_to,
    coverage,
    difference,
    jain,
    mean_over_rounds,
    members,
    rounds_to,
)
from fedjax_sel.papers.differences import open_interval
from fedjax_sel.papers.measures import ALONG, list_results, measure_once
from fedjax_sel.papers.paper import Evidence, Histories, Result
from fedjax_sel.papers.uacs.cells import (
    BOUNDARY,
    ENTROPY,
    EVERYBODY,
    LONG,
    MORE,
    MORE_BOUNDARY,
    OTHERS,
    RANDOM,
    SETTINGS,
    name_experiment,
)

TARGET = 0.95

COMPARABLE = 0.01
"""Accuracies closer than this are called comparable."""

BOUNDS = (4.5, 5.0)
"""So many of 6 selected must be boundary clients for the highest entropies to be theirs; judged by is the last."""

NOTICED = 0.001
"""A smaller advantage in accuracy would be noticed by nobody."""


@measure_once
def measure(experiment: str, history: History) -> dict[str, np.ndarray]:
    """Returns numbers a seed of one cell.

    Args:
      experiment: of the cell, which says how many clients are at the boundary.
      history: of the cell.
    """
    fifth = history.rounds // 5
    near = members(history.selections, np.arange(count_boundary(experiment)))
    accuracy, sent, work = history["accuracy"], history.cumulative("bytes"), history.cumulative("flops")
    return {
        "final_accuracy": accuracy[:, -1],
        "mean_accuracy": mean_over_rounds(accuracy),
        f"rounds_to_{TARGET}": rounds_to(accuracy, TARGET),
        f"bytes_to_{TARGET}": cost_to(accuracy, sent, TARGET),
        f"flops_to_{TARGET}": cost_to(accuracy, work, TARGET),
        "bytes": sent[:, -1],
        "flops": work[:, -1],
        "boundary_clients_after_first_fifth": near[:, fifth:].mean(1),
        "coverage": coverage(history.selections, history.num_clients)[:, -1],
        "jain": jain(history.counts()),
    }


def count_boundary(experiment: str) -> int:
    """Returns how many clients of an experiment are at the boundary, the first of all."""
    return MORE_BOUNDARY if experiment.endswith(MORE) else 0 if experiment.endswith(OTHERS) else BOUNDARY


def list_all_results(scale: str, evidence: Evidence) -> list[Result]:
    """Returns every measure of every cell, and accuracy along the way. The paper publishes no numbers."""
    return list_results(evidence.histories, measure, along=ALONG)


def compare(histories: Histories, first: str, second: str, metric: str, variation: str = "") -> dict[str, Difference]:
    """Returns `first - second` in each setting; of rounds to a target, open where one of them misses it."""
    out = {}
    for setting, title in SETTINGS.items():
        experiment = name_experiment(setting, variation)
        a, b = (measure(experiment, histories[experiment, method])[metric] for method in (first, second))
        out[title] = subtract(a, b, metric, histories[experiment, first].rounds)
    return out


def subtract(first: np.ndarray, second: np.ndarray, metric: str, rounds: int) -> Difference:
    """Returns the difference of a measure; of rounds to a target, open where a run of so many rounds misses it."""
    d = difference(first, second)
    if not metric.startswith("rounds_to"):
        return d
    return open_interval(d, first_missed=bool((first > rounds).any()), second_missed=bool((second > rounds).any()))


def find_paid(histories: Histories, setting: int, method: str, unit: str, payer: str) -> np.ndarray:
    """Returns a method's accuracy when it has spent what another one spends in its whole run, Float[R].

    Args:
      histories: of the cells.
      setting: 1, 2 or 3.
      method: whose accuracy; of random selection that of its longer run.
      unit: "bytes" or "flops".
      payer: whose costs are the budget.
    """
    title = SETTINGS[setting]
    history = histories[name_experiment(setting, LONG) if method == RANDOM else title, method]
    return at_cost(history["accuracy"], history.cumulative(unit), histories[title, payer].cumulative(unit)[:, -1])


def compare_paid(histories: Histories, first: str, second: str, unit: str, payer: str) -> dict[str, Difference]:
    """Returns `first - second` in each setting, both when they have spent what `payer` spends in all."""
    return {
        title: difference(*(find_paid(histories, setting, method, unit, payer) for method in (first, second)))
        for setting, title in SETTINGS.items()
    }


def compare_parts(histories: Histories, first: str, second: str, metric: str) -> dict[str, Difference]:
    """Returns `first - second` in each setting, each all clients' or only some clients' training.

    Args:
      histories: of the cells.
      first, second: `ALONE` or `OTHERS`; empty: all clients.
      metric: of `measure`.
    """
    out = {}
    for setting, title in SETTINGS.items():
        both = (name_experiment(setting, part) for part in (first, second))
        out[title] = difference(*(measure(name, histories[name, EVERYBODY])[metric] for name in both))
    return out


BROADCAST = "bytes if broadcast"
"""A unit of cost: bytes if the server sends every new model to all clients, as in the last step of the algorithm."""


def accumulate(history: History, unit: str) -> np.ndarray:
    """Returns what a run has spent after each round, Float[R, T].

    Args:
      history: of the run.
      unit: "bytes", "flops" or `BROADCAST`.
    """
    if unit != BROADCAST:
        return history.cumulative(unit)
    model = history["bytes_down"] / (history.selections >= 0).sum(-1)
    return np.cumsum(history.num_clients * model + history["bytes_up"] + history["selection_bytes_up"], axis=1)


def compare_at_equal_cost(histories: Histories, unit: str, variation: str = "") -> dict[str, Difference]:
    """Returns entropy selection's accuracy when it has spent what random selection spends in all, minus random's."""
    out = {}
    for setting, title in SETTINGS.items():
        experiment = name_experiment(setting, variation)
        entropy, random = histories[experiment, ENTROPY], histories[experiment, RANDOM]
        reached = at_cost(entropy["accuracy"], accumulate(entropy, unit), accumulate(random, unit)[:, -1])
        out[title] = difference(reached, random["accuracy"][:, -1])
    return out
