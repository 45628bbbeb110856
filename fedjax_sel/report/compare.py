"""Comparison of several finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from fedjax_sel.config import KINDS
from fedjax_sel.engine.history import History
from fedjax_sel.metrics import cost_to, rounds_to
from fedjax_sel.report.summary import describe_diverged, format_quantity, summarize


def find_reachable_accuracy(runs: Mapping[str, tuple[History, dict]]) -> float:
    """Returns an accuracy that every seed of every run reaches: the lowest best accuracy, rounded down to a per cent.

    Seeds that diverged do not count; 0 where all diverged.

    Raises:
      ValueError: a run has no accuracy.
    """
    if lacking := [name for name, (history, _) in runs.items() if history.headline != "accuracy"]:
        raise ValueError(f"{lacking[0]} has no accuracy, as its targets are no classes; runs are compared by accuracy")
    best = [
        np.asarray(summarize(history)["best_accuracy"]["per_seed"])[history.diverged == 0]
        for history, _ in runs.values()
    ]
    return float(np.floor(100 * np.concatenate(best).min(initial=1.0)) / 100) if sum(map(len, best)) else 0.0


def list_runs(runs: Mapping[str, tuple[History, dict]]) -> Iterator[str]:
    """Yields a line for each run, in the order of the table: its number, folder, data, selector and length."""
    for number, (name, (history, config)) in enumerate(runs.items(), start=1):
        selection = describe_component("client_selection", config["client_selection"])
        about = f"{config['data']['name']}, {selection}, {history.rounds} rounds"
        seeds = f"{len(history.seeds)} seed{'s' * (len(history.seeds) != 1)}"
        if history.diverged.any():
            seeds = describe_diverged(summarize(history)["diverged"])
        yield f"{number}: {name}, {about}, {seeds}"


def compare_runs(runs: Mapping[str, tuple[History, dict]], target: float) -> Table:
    """Returns a table with a line for each run, by its number; runs may differ in rounds and seeds.

    Args:
      runs: by name.
      target: accuracy; the table has the rounds and bytes (simulated seconds and joules, where a run has devices) until
        it is reached: medians over seeds.
    """
    out = Table(title=f"target accuracy {target:g}", title_justify="left")
    timed = any("seconds" in history.metrics for history, _ in runs.values())
    costs = ("bytes", "seconds", "joules") if timed else ("bytes",)
    for head in (
        "run",
        "final accuracy",
        "rounds to target",
        *(f"{cost} to target" for cost in costs),
        *costs,
        "FLOPs",
    ):
        out.add_column(head, justify="right", overflow="fold")
    for number, (history, _) in enumerate(runs.values(), start=1):
        found = summarize(history)
        out.add_row(
            str(number),
            format_spread(found["final_accuracy"]),
            *format_costs_to(history, target, costs),
            *(format_cost(found, cost, UNITS[cost]) for cost in costs),
            format_cost(found, "flops", "FLOP"),
        )
    return out


UNITS = {"bytes": "B", "seconds": "s", "joules": "J"}
"""Units of the costs of a run."""


def format_costs_to(history: History, target: float, costs: Sequence[str] = ("bytes",)) -> tuple[str, ...]:
    """Returns rounds and costs to the target as text: medians over seeds, with the number of seeds that never reach it.

    A seed that never reaches it counts as more than all rounds; a cost that was not counted is –.
    """
    rounds = rounds_to(history["accuracy"], target)
    missed = int((rounds > history.rounds).sum())
    middle = float(np.median(rounds))
    first = f">{history.rounds}" if middle > history.rounds else f"{middle:g}"

    def format_reached(cost: str) -> str:
        if cost != "bytes" and cost not in history.metrics:
            return "–"
        middle = float(np.median(cost_to(history["accuracy"], history.cumulative(cost), target)))
        return format_quantity(middle, UNITS[cost]) if np.isfinite(middle) else "never"

    first += f" ({missed} of {len(rounds)} never)" if 0 < missed < len(rounds) else ""
    return first, *map(format_reached, costs)


def format_cost(found: Mapping[str, Mapping[str, Any]], cost: str, unit: str) -> str:
    """Returns the mean of a cost as text; – where it was not counted, or all seeds diverged."""
    known = cost in found and not np.isnan(found[cost]["mean"])
    return format_quantity(found[cost]["mean"], unit) if known else "–"


def format_spread(number: Mapping[str, Any]) -> str:
    """Returns mean ± standard deviation over seeds; the mean alone for one seed, – where all diverged."""
    if np.isnan(number["mean"]):
        return "–"
    return f"{number['mean']:.4f}" + (f" ± {number['std']:.4f}" if len(number["per_seed"]) > 1 else "")


def describe_component(key: str, component: Mapping[str, Any]) -> str:
    """Returns a component with the parameters that differ from its defaults, as in `entropy(epsilon=0.2)`."""
    try:
        usual = KINDS[key].resolve(key, component["name"]) or {}
    except ValueError:  # a strategy that is not installed here; its run can still be compared
        usual = {}
    rest = ", ".join(f"{name}={value}" for name, value in component.items() if value != usual.get(name))
    return component["name"] + (f"({rest})" if rest else "")
