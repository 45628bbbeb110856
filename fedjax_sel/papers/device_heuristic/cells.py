"""The runs of the reproduction of heuristic device selection: both partitions, every fraction, all methods."""

from __future__ import annotations

from typing import Any

from fedjax_sel.client_selection._device_heuristic import cohort_size
from fedjax_sel.papers.paper import Cell

PROPOSED, SET, RANDOM, ALL = "Proposed Algorithm", "Set-Based Method", "Random Selection", "All Devices"
ONLY = {
    "Compute Only": "alpha",
    "Energy Only": "beta",
    "Memory Only": "gamma",
    "Network Only": "delta",
}
"""Methods that use H with one property alone, and the weight that each keeps."""

DEVICES = 30
IID, SKEWED = "IID", "Dirichlet(0.3)"
PARTITIONS = (IID, SKEWED)
FRACTIONS = (1.0, 0.75, 0.5)
TENTH = 0.1
"""A fraction beyond the source: three devices."""

LINEAR = "logistic regression"
"""Experiments with a model other than the source's."""

LONGER, ROUNDS = "for longer", 2000
"""Experiments in which only the proposed algorithm trains for longer, and their number of rounds: until it has spent
what the others spend in theirs."""

LEVELS = {"name": "uniform", "compute": 2e7, "efficiency": 2e8, "up": 1e6, "down": 4e6, "radio": 0.1}
PHONE = {"name": "uniform"}
"""The law's default levels."""

WEIGHTS = ("alpha", "beta", "gamma", "delta")


def describe_selector(**given: Any) -> dict[str, Any]:
    """Returns the selector's settings, with `f` as it was drawn."""
    return {"name": "device_heuristic", "scale": "max", **given}


METHODS: dict[str, dict[str, Any]] = {
    PROPOSED: describe_selector(solver="greedy"),
    SET: describe_selector(solver="exact"),
    RANDOM: {"name": "uniform"},
}
ALONE = {
    method: describe_selector(solver="exact", **{weight: float(weight == left) for weight in WEIGHTS})
    for method, left in ONLY.items()
}


def list_cells(scale: str) -> list[Cell]:
    """Returns the cells of both partitions, every fraction and all methods.

    `smoke` leaves out telephones, `f` scaled to its range, the other model and the longer runs.
    """
    out = [
        make_cell(scale, partition, epsilon, ALL if (epsilon, method) == (1.0, RANDOM) else method, selector)
        for partition in PARTITIONS
        for epsilon in list_fractions(scale)
        for method, selector in METHODS.items()
        if not (epsilon == TENTH and method == SET)
    ]
    out += [
        make_cell(scale, partition, 0.5, method, selector)
        for partition in PARTITIONS
        for method, selector in ALONE.items()
    ]
    if scale != "smoke":
        ranged = describe_selector(solver="greedy", scale="range")
        for partition in PARTITIONS:
            out.append(make_cell(scale, partition, 0.5, PROPOSED, ranged, "f over its range"))
            for method in (PROPOSED, RANDOM):
                out.append(make_cell(scale, partition, 0.5, method, METHODS[method], "telephones", devices=PHONE))
            for epsilon, method in ((1.0, ALL), (0.5, PROPOSED), (0.5, RANDOM)):
                selector = METHODS[RANDOM if method == ALL else method]
                out.append(make_cell(scale, partition, epsilon, method, selector, LINEAR, model={"name": "logistic"}))
            for epsilon in (0.75, 0.5):
                longer = {"rounds": ROUNDS, "chunk": 200}
                out.append(make_cell(scale, partition, epsilon, PROPOSED, METHODS[PROPOSED], LONGER, **longer))
    return out


def list_fractions(scale: str) -> tuple[float, ...]:
    """Returns the values of ε at a scale, largest first."""
    return (1.0, 0.5) if scale == "smoke" else (*FRACTIONS, TENTH)


def make_cell(
    scale: str, partition: str, epsilon: float, method: str, selector: dict[str, Any], change: str = "", **other: Any
) -> Cell:
    """Returns the cell of one run."""
    law = {"name": "iid"} if partition == IID else {"name": "client_dirichlet", "alpha": 0.3}
    config = {
        "data": {"name": "iris", "seed": None},
        "partition": {**law, "clients": DEVICES},
        "model": {"name": "mlp", "hidden": [32]},
        "local_training": {"name": "sgd", "learning_rate": 0.1, "batch_size": 4, "epochs": 5},
        "aggregation": {"name": "mean", "weighting": "size"},
        "devices": LEVELS,
        "client_selection": selector,
        "cohort_size": cohort_size(epsilon, DEVICES),
        "rounds": 10 if scale == "smoke" else 50,
        "chunk": 10 if scale == "smoke" else 25,
    }
    return Cell(name_experiment(partition, epsilon, change), method, {**config, **other})


def name_experiment(partition: str, epsilon: float, change: str = "") -> str:
    """Returns the name of an experiment."""
    return f"{partition}, epsilon={epsilon:g}" + (f", {change}" if change else "")
