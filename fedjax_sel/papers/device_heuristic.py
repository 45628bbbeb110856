"""Heuristic device selection: the devices with the best mean compute, energy, memory, and the best worst network."""

from __future__ import annotations

from typing import Any

from fedjax_sel.client_selection._device_heuristic import cohort_size
from fedjax_sel.devices import laws
from fedjax_sel.papers import _device_figures as figures_of
from fedjax_sel.papers._device_claims import claims
from fedjax_sel.papers._device_numbers import (
    ALL,
    DEVICES,
    FRACTIONS,
    IID,
    ONLY,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    TENTH,
    named,
    results,
)
from fedjax_sel.papers._device_solver_study import study
from fedjax_sel.papers._device_tables import run_tables, solver_tables, table_5_1
from fedjax_sel.papers._paper import Cell, Evidence, Figure, Paper, Table

__all__ = ["PAPER"]

OPEN = """
The source gives 30 devices, Iris, an MLP with 32 hidden units, 5 local epochs, sparse categorical cross-entropy,
aggregation by sample counts, α = β = γ = δ = 0.25, ε ∈ {1, 0.75, 0.5}, and accuracies of single runs. It leaves open
rounds, learning rate, batch, test rows, partition, seeds, and the law and the units of the properties f.

Ours: 30 of the 150 rows, in proportion to their classes, are test rows; every seed draws others. The 120 training rows
are 4 a device: dealt at random (IID), or of a mix of classes that each device draws from Dirichlet(0.3 × the shares of
the classes), with equal sizes. 50 rounds of 5 epochs of SGD with learning rate 0.1; a batch is a device's 4 rows. Rows
are normalised. A seed draws test rows, partition, devices, initial model and cohorts; all methods see the same.

Each property is U(0, 1] of its largest value, independently (the source shows a picture without units); f is the
property over the largest among the devices. A device is a microcontroller: at most 20 MFLOP/s, 200 MFLOP/J, 1 MB/s up
and 4 MB/s down, and 0.1 W of radio. These levels are ours; with them the best device spends half of a round's time and
of its energy on computing, so that neither f1, f2 nor f4 is without effect. Memory has none in the simulation. Seconds
and joules are simulated: a round lasts as long as its slowest device.

*Proposed* is Algorithm 1 (greedy from every first device, with the evident corrections: the next device maximises
H(S ∪ {n}), and the minimum of f4 is over S, not over the product with the mask, which is 0). *Set-based* is the optimum
of H. *Random* draws as many devices afresh in every round. Beyond the source: ε = 0.1, and H with one property alone;
at scale `full` also telephones, on which nearly all time and energy go into the transfer, and f scaled to its range.

A verdict compares two methods over the same seeds: the mean difference with its 95 % interval (Student's t). "More
accurate" is reproduced where the interval lies above zero in every experiment, not reproduced where it lies below 0.001
in one. At equal cost: final accuracy of the proposed algorithm, minus the accuracy of the other when it has spent as
much. A run that never reaches the target counts as reaching it in the round after the last.
"""

LEVELS = {"name": "uniform", "compute": 2e7, "efficiency": 2e8, "up": 1e6, "down": 4e6, "radio": 0.1}
PHONE = {"name": "uniform"}
"""The law's own levels."""

WEIGHTS = ("alpha", "beta", "gamma", "delta")


def heuristic(**given: Any) -> dict[str, Any]:
    """The selector, with `f` as it was drawn."""
    return {"name": "device_heuristic", "scale": "max", **given}


METHODS: dict[str, dict[str, Any]] = {
    PROPOSED: heuristic(solver="greedy"),
    SET: heuristic(solver="exact"),
    RANDOM: {"name": "uniform"},
}
ALONE = {
    method: heuristic(solver="exact", **{weight: float(weight == left) for weight in WEIGHTS})
    for method, left in ONLY.items()
}


def cells(scale: str) -> list[Cell]:
    """Both partitions, every fraction, all methods; at `full` also telephones and `f` scaled to its range."""
    out = [
        cell(scale, partition, epsilon, ALL if (epsilon, method) == (1.0, RANDOM) else method, selector)
        for partition in PARTITIONS
        for epsilon in fractions(scale)
        for method, selector in METHODS.items()
        if not (epsilon == TENTH and method == SET)
    ]
    out += [
        cell(scale, partition, 0.5, method, selector) for partition in PARTITIONS for method, selector in ALONE.items()
    ]
    if scale == "full":
        ranged = heuristic(solver="greedy", scale="range")
        for partition in PARTITIONS:
            out.append(cell(scale, partition, 0.5, PROPOSED, ranged, "f over its range"))
            for method in (PROPOSED, RANDOM):
                out.append(cell(scale, partition, 0.5, method, METHODS[method], "telephones", devices=PHONE))
    return out


def fractions(scale: str) -> tuple[float, ...]:
    """ε of a scale."""
    return (1.0, 0.5) if scale == "smoke" else (*FRACTIONS, TENTH)


def cell(
    scale: str, partition: str, epsilon: float, method: str, selector: dict[str, Any], change: str = "", **other: Any
) -> Cell:
    """One run."""
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
    return Cell(named(partition, epsilon, change), method, {**config, **other})


def tables(scale: str, evidence: Evidence) -> list[Table]:
    """The source's table, every cell, the solvers."""
    histories = evidence.histories
    return [table_5_1(histories), *run_tables(histories), *solver_tables(evidence.studies["solvers"])]


def figures(scale: str, evidence: Evidence) -> list[Figure]:
    """As in the source, and beyond it."""
    present = [epsilon for epsilon in (0.75, 0.5, TENTH) if epsilon in fractions(scale)]
    return figures_of.drawn(evidence, present, laws.Uniform(**{k: v for k, v in LEVELS.items() if k != "name"}))


PAPER = Paper(
    name="device_heuristic",
    title="Heuristic device selection",
    reference='Kartik Kailas Mouli, "Device Selection Algorithm for Federated Learning", B.Tech. thesis, Indian '
    "Institute of Technology Patna, May 2024.",
    seeds={"smoke": 2, "small": 20, "full": 20},
    settings=OPEN,
    cells=cells,
    results=results,
    claims=claims,
    tables=tables,
    figures=figures,
    studies={"solvers": study},
)
