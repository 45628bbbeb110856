"""The tables of the report on heuristic device selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.client_selection._device_heuristic import cohort_size
from fedjax_sel.papers.device_heuristic.beyond import make_beyond_tables
from fedjax_sel.papers.device_heuristic.cells import PARTITIONS, PROPOSED, SET, name_experiment
from fedjax_sel.papers.device_heuristic.numbers import COSTS, PUBLISHED, TARGET, measure, select_rows, select_seconds
from fedjax_sel.papers.device_heuristic.studies import BEST, EVERY, EXACT, EXHAUSTIVE, LETTER
from fedjax_sel.papers.measures import format_mean_std
from fedjax_sel.papers.paper import Evidence, Histories, Table, join


def make_tables(scale: str, evidence: Evidence) -> list[Table]:
    """Returns the tables: the source's, those of every cell, of the solvers, and beyond the source."""
    histories = evidence.histories
    return join(
        lambda: [make_table_5_1(histories)],
        lambda: make_run_tables(histories),
        lambda: make_solver_tables(evidence.studies["solvers"]),
        lambda: make_beyond_tables(evidence),
    )


def make_table_5_1(histories: Histories) -> Table:
    """Returns the source's only table beside ours."""
    rows = []
    for epsilon, method in ((1.0, SET), (1.0, PROPOSED), (0.5, SET), (0.5, PROPOSED)):
        theirs = [PUBLISHED[epsilon, method, metric] for metric in ("final_accuracy", "final_loss")]
        ours = [measure(histories[name_experiment(partition, epsilon), method]) for partition in PARTITIONS]
        rows.append(
            (
                f"{epsilon:g}",
                method,
                f"{100 * theirs[0]:g}",
                f"{theirs[1]:g}",
                *(format_mean_std(100 * one["final_accuracy"], 1) for one in ours),
                *(format_mean_std(one["final_loss"], 2) for one in ours),
            )
        )
    return Table(
        "Table 5.1 of the source beside our results: final accuracy (%) and loss",
        (
            *("ε", "method", "published accuracy", "published loss"),
            *(f"{what}, {partition}" for what in ("accuracy", "loss") for partition in PARTITIONS),
        ),
        tuple(rows),
        "The source does not give its number of runs, rounds, test examples and partition; 92.33 and 89.9 % are not "
        "shares of 30 or of 150 examples. Our numbers are mean ± standard deviation over seeds.",
    )


def make_run_tables(histories: Histories) -> list[Table]:
    """Returns the accuracy and the costs of every cell."""
    quality, costs = [], []
    for key, history in histories.items():
        value = measure(history)
        reached = np.median(value[f"rounds_to_{TARGET}"])
        quality.append(
            (
                *key,
                format_mean_std(value["final_accuracy"], 3),
                format_mean_std(value["final_loss"], 2),
                format_mean_std(value["mean_accuracy"], 3),
                f">{history.rounds}" if reached > history.rounds else f"{reached:g}",
                f"{value['coverage'].mean():.2f}",
            )
        )
        costs.append(
            (
                *key,
                *(format_quantity(np.median(value[cost]) / history.rounds, unit) for cost, unit in COSTS.items()),
                *(format_quantity(np.median(value[f"{cost}_to_{TARGET}"]), unit) for cost, unit in COSTS.items()),
            )
        )
    return [
        Table(
            "Accuracy, mean ± standard deviation over seeds",
            ("experiment", "method", "final accuracy", "loss", "mean over rounds", f"rounds to {TARGET}", "coverage"),
            tuple(quality),
            "Rounds to the target are medians over seeds. Coverage is the share of the devices whose examples were "
            "ever trained on.",
        ),
        Table(
            "Cost, medians over seeds",
            ("experiment", "method", "time per round", "energy per round", f"time to {TARGET}", f"energy to {TARGET}"),
            tuple(costs),
            "Seconds are simulated: a round lasts as long as its slowest device. Joules are those of all devices "
            "together.",
        ),
    ]


def format_quantity(value: float, unit: str) -> str:
    """Returns a quantity in a readable unit.

    >>> [format_quantity(value, "s") for value in (0.0123, 0.00000123, float("inf"), 12.3)]
    ['12.3 ms', '1.23 µs', 'never', '12.3 s']
    """
    if not np.isfinite(value):
        return "never"
    for prefix, factor in (("", 1.0), ("m", 1e3), ("µ", 1e6)):
        if value * factor >= 1 or prefix == "µ":
            return f"{value * factor:.3g} {prefix}{unit}"
    raise AssertionError


def make_solver_tables(study: Mapping[str, Any]) -> list[Table]:
    """Returns how often the solvers find the optimum, and how long they take."""
    epsilons = sorted({row["epsilon"] for row in study["optimality"]} - {1.0}, reverse=True)
    shares = []
    for epsilon in epsilons:
        for every, best, letter in zip(
            *(select_rows(study, solver, epsilon=epsilon) for solver in (EVERY, BEST, LETTER)), strict=True
        ):
            n = every["N"]
            shares.append(
                (
                    f"{epsilon:g}",
                    f"{n}",
                    f"{cohort_size(epsilon, n)}",
                    *(f"{100 * np.mean(row['share_optimal']):.1f}" for row in (every, best, letter)),
                    *(f"{100 * np.mean(row['mean_gap']):.3f}" for row in (every, best, letter)),
                    f"{100 * np.max(every['worst_gap']):.1f}",
                )
            )
    kinds = ((EXHAUSTIVE, "half"), (EVERY, "half"), (BEST, "half"), (EXACT, "half"), (EVERY, "few"), (EXACT, "few"))
    found = [select_seconds(study, *kind) for kind in kinds]
    sizes = sorted({n for one in found for n in one})
    return [
        Table(
            "Solvers: share of the instances in which the optimum is found, and loss of H (%)",
            (
                *("ε", "N", "s", EVERY, BEST, LETTER),
                *(f"mean loss, {solver}" for solver in (EVERY, BEST, LETTER)),
                f"worst loss, {EVERY}",
            ),
            tuple(shares),
            f"There are {study['instances a seed']} instances per seed, with properties from U(0, 1). Losses of H are "
            "relative to the optimum. At ε = 1 there is only one set, and all solvers find it.",
        ),
        Table(
            "Solvers: median time of one call, without compilation",
            ("N", *(f"{solver}, s = {'N/2' if wanted == 'half' else 10}" for solver, wanted in kinds)),
            tuple((f"{n}", *(format_quantity(one[n], "s") if n in one else "—" for one in found)) for n in sizes),
            "Times were measured on the device named below, which may have been busy with other work; only their "
            "ratios are meaningful.",
        ),
    ]
