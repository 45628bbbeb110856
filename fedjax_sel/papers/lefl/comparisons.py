"""What the claims of the LEFL report share: numbers of a run, comparisons of two runs of an experiment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedjax_sel.metrics import Difference
from fedjax_sel.papers.differences import compare_factor, open_interval, pair, subtract
from fedjax_sel.papers.lefl.cells import LEFL, list_runs, name_experiment
from fedjax_sel.papers.lefl.numbers import COSTS, find_target, measure
from fedjax_sel.papers.paper import Histories

NOTICED = 0.005
"""An advantage in accuracy of at most this is negligible."""

SPEED_UP = 3.0
"""In Table I, LEFL needs 3.7, 5.3 and 7.7 times fewer rounds than FedAvg."""

Made = tuple[str, str]
"""A run of an experiment: its settings and its method."""


def has_all(scale: str, settings: str, methods: Iterable[str]) -> bool:
    """Returns whether a scale runs LEFL and all of these methods under some settings."""
    return {(settings, method) for method in (*methods, LEFL)} <= set(list_runs(scale))


def list_settings(names: Iterable[str], *settings: str) -> list[str]:
    """Returns the names of these experiments under each of these settings."""
    return [name_experiment(name, one) for one in settings for name in names]


def measure_cell(histories: Histories, name: str, settings: str, method: str, metric: str) -> np.ndarray:
    """Returns one number per seed; after a miss, `rounds` is the run's + 1, and a cost its total."""
    value = measure(name, histories[name_experiment(name, settings), method])
    if metric in COSTS:
        paid = value[f"{metric}_to_{find_target(name):g}"]
        return np.where(np.isfinite(paid), paid, value[metric])
    return value[f"rounds_to_{find_target(name):g}" if metric == "rounds" else metric]


def compare(
    histories: Histories, names: Iterable[str], metric: str, first: Made, second: Made
) -> dict[str, Difference]:
    """Returns first minus second by experiment, over the seeds that both have."""
    return {name: subtract(*(measure_cell(histories, name, *one, metric) for one in (first, second))) for name in names}


def compare_ratio(
    histories: Histories, names: Iterable[str], slow: Made, fast: Made, times: float
) -> dict[str, Difference]:
    """Returns by how many decades the slow one's rounds to the target are above `times` the fast one's."""
    out = {}
    for name in names:
        first, second = pair(*(measure_cell(histories, name, *one, "rounds") for one in (slow, fast)))
        out[name] = open_interval(compare_factor(first, second, times), **find_misses(histories, name, slow, fast))
    return out


def compare_costs(
    histories: Histories, names: Iterable[str], metric: str, slow: Made, fast: Made
) -> dict[str, Difference]:
    """Returns the slow one's cost to the target minus the fast one's, by experiment."""
    found = compare(histories, names, metric, slow, fast)
    return {name: open_interval(d, **find_misses(histories, name, slow, fast)) for name, d in found.items()}


def find_misses(histories: Histories, name: str, first: Made, second: Made) -> dict[str, bool]:
    """Returns whether each of two runs misses the target in any of the seeds that both have."""
    both = pair(*(measure_cell(histories, name, *one, "rounds") for one in (first, second)))
    missed = (
        bool((rounds > histories[name_experiment(name, settings), method].rounds).any())
        for rounds, (settings, method) in zip(both, (first, second), strict=True)
    )
    return dict(zip(("first_missed", "second_missed"), missed, strict=True))


def list_medians(histories: Histories, names: Iterable[str], settings: str, methods: Iterable[str]) -> dict[str, Any]:
    """Returns the median over seeds of the rounds to the target, of the methods that were run."""
    return {
        f"{name}, to accuracy {find_target(name):g}": {
            f"{method} ({settings})": float(np.median(measure_cell(histories, name, settings, method, "rounds")))
            for method in methods
            if (name_experiment(name, settings), method) in histories
        }
        for name in names
    }
