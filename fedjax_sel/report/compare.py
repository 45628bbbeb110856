"""Comparison of several finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from fedjax_sel.catalog import check_name
from fedjax_sel.config import KINDS
from fedjax_sel.config.resolve import ANSWERS
from fedjax_sel.engine.faults import find_diverged, find_faults, say_diverged, say_fault
from fedjax_sel.engine.history import FAULT, TOTALS, History
from fedjax_sel.metrics import cost_to, rounds_to
from fedjax_sel.metrics.verdict import adjust_holm, difference
from fedjax_sel.report.quantities import COSTS, format_count
from fedjax_sel.report.summary import sum_metrics, summarize, summarize_accuracy

COUNTED = {*COSTS, *(part for parts in TOTALS.values() for part in parts), "left_out", "idle"}
"""Metrics that are added up over rounds, with those of `history.FAULT`."""


def choose_metric(runs: Mapping[str, tuple[History, dict]], metric: str | None = None) -> str:
    """Returns the metric by which runs are compared: the one given, or accuracy, or loss if a run has no accuracy.

    Raises:
      ValueError: a run does not have the metric, or it is not one number a round.
    """
    if metric is None:
        return "accuracy" if all(history.headline == "accuracy" for history, _ in runs.values()) else "loss"
    for name, (history, _) in runs.items():
        numbers = [one for one, values in history.metrics.items() if np.ndim(values) == 2]
        check_name(f"metric of {name}:", metric, [*numbers, *TOTALS])
    return metric


def is_cost(metric: str) -> bool:
    """Returns whether a run's rounds add up to its value, as bytes do.

    >>> [name for name in ("accuracy", "bytes", "client_flops", "client_accuracy", "loss", "seconds") if is_cost(name)]
    ['bytes', 'client_flops', 'seconds']
    """
    return metric in COUNTED or metric.startswith(FAULT)


def measure_runs(history: History, metric: str) -> Float[np.ndarray, "R"]:
    """Returns each seed's last value of a metric, NaN if it has none, or the total of a cost."""
    return sum_metrics(history, metric) if is_cost(metric) else history.last(metric)


def name_value(metric: str) -> str:
    """Returns what `measure_runs` gives in words."""
    return f"{'total' if is_cost(metric) else 'final'} {metric}"


def find_reachable_accuracy(runs: Mapping[str, tuple[History, dict]]) -> float | None:
    """Returns an accuracy that every seed of every run reaches: the lowest best accuracy, rounded down to 1 %.

    Seeds that diverged or were never evaluated do not count; the result is None if no seed is left.
    """
    best = [summarize_accuracy(history)["best_accuracy"][history.diverged == 0] for history, _ in runs.values()]
    known = np.concatenate(best).astype(np.float64)
    known = known[~np.isnan(known)]
    if not known.size:
        return None
    return float(np.floor(100 * known.min(initial=1.0) + 1e-4) / 100)  # 0.58 in float32 is below it


def list_runs(runs: Mapping[str, tuple[History, dict]]) -> Iterator[str]:
    """Yields a line per run, in the order of the table: number, folder, data, selector, differences, length."""
    configs = [config for _, config in runs.values()]
    answers = [*ANSWERS, "devices"]

    def differ(key: str) -> bool:
        return len({repr(config.get(key)) for config in configs}) > 1

    shown = dict.fromkeys(["client_selection", *filter(differ, [*answers, "model", "partition"])])
    plain = list(filter(differ, ("task", "holdout", "data_seed", "public", "cohort_size", "deadline")))
    of_data = {key for config in configs for key in config["data"]} - {"name"}
    inside = [key for key in sorted(of_data) if len({repr(config["data"].get(key)) for config in configs}) > 1]
    for number, (name, (history, config)) in enumerate(runs.items(), start=1):
        parts = [describe_answer(key, config.get(key)) for key in shown]
        parts = [f"{key}={config['data'][key]}" for key in inside if key in config["data"]] + parts
        parts += [f"{key}={config.get(key)}" for key in plain]
        about = ", ".join([config["data"]["name"], *parts, f"{history.rounds} rounds"])
        seeds = format_count(len(history.seeds), "seed")
        if found := find_diverged(history):
            seeds = say_diverged(**found)
        yield f"{number}: {name}, {about}, {seeds}"


def describe_answer(key: str, given: Any) -> str:
    """Returns a run's component, or that it has none of the kind: devices, volatility and the like."""
    return f"no {key.replace('_', ' ')}" if given is None else describe_component(key, given)


def list_faults(runs: Mapping[str, tuple[History, dict]]) -> Iterator[str]:
    """Yields a line for each kind of invalid value that a run's strategies returned."""
    for number, (history, _) in enumerate(runs.values(), start=1):
        yield from (f"{number} has a fault: {say_fault(fault)}" for fault in find_faults(history))


def compare_runs(
    runs: Mapping[str, tuple[History, dict]],
    metric: str = "accuracy",
    target: float | None = None,
    at_budget: bool = False,
) -> Table:
    """Returns a table with one row per run, numbered; runs may differ in rounds and seeds.

    Args:
      runs: the runs, by name.
      metric: what is compared.
      target: accuracy; with it the table has the rounds and bytes (simulated seconds and joules if a run has devices)
        until it is reached, as medians over seeds.
      at_budget: whether the runs were limited to one budget, beyond which it is not known when they reach the target.
    """
    title = None if target is None else f"target accuracy {target:g} (medians over seeds)"
    several = any((history.diverged == 0).sum() > 1 for history, _ in runs.values())
    caption = "± is the standard deviation over seeds" if several else None
    out = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    timed = any("seconds" in history.metrics for history, _ in runs.values())
    costs = ("bytes", "seconds", "joules") if timed else ("bytes",)
    aims = () if target is None else ("rounds to target", *(f"{cost} to target" for cost in costs))
    for head in ("run", name_value(metric), *aims, *costs, "FLOPs"):
        out.add_column(head, justify="right", no_wrap=True)
    for number, (history, _) in enumerate(runs.values(), start=1):
        found = summarize(history)
        out.add_row(
            str(number),
            format_spread(measure_runs(history, metric)[history.diverged == 0], metric),
            *(() if target is None else format_costs_to(history, target, costs, at_budget)),
            *(format_cost(found, cost) for cost in costs),
            format_cost(found, "flops"),
        )
    return out


PAIRED = ("data", "public", "data_seed", "partition", "holdout", "devices")
"""The keys that must agree for a seed to draw the same problem in two runs."""


def compare_pairs(
    runs: Mapping[str, tuple[History, dict]], metric: str = "accuracy", at_budget: bool = False
) -> tuple[Table | None, list[str]]:
    """Returns a table of the other runs' differences from the first, paired by seed, and lines on what is not compared.

    A difference is that of the runs' values of `metric` (`measure_runs`), over the seeds that have one in both runs and
    diverged in neither, with the 95 % interval of its mean by Student's t, and the p-value of the paired t test,
    adjusted by Holm's method if there are several tests. The table is None if there is nothing to compare.

    Args:
      runs: the runs, by name; the others are compared with the first.
      metric: what is compared.
      at_budget: whether the runs were limited to one budget, so that they may have different numbers of rounds.
    """
    (first, config), *others = runs.values()
    rows, said = [], []
    for number, (history, other) in enumerate(others, start=2):
        same = is_common(metric, config, other)
        must_agree = (*PAIRED, *(() if at_budget else ("rounds",)), *(() if same else ("task",)))
        if differing := [key for key in must_agree if config.get(key) != other.get(key)]:
            said.append(f"{number} is not compared with 1 seed by seed: they differ in {', '.join(differing)}")
            continue
        if history.rounds != first.rounds and not at_budget:  # a callback ended one of them
            said.append(
                f"{number} is not compared with 1 seed by seed: it ran {history.rounds} rounds, 1 {first.rounds}"
            )
            continue
        common = find_common_seeds(first, history)
        if diverged := sorted(set(first.seeds) & set(history.seeds) - set(common)):
            shown = ", ".join(map(str, diverged))
            said.append(f"seeds that diverged in 1 or {number}, left out of the difference: {shown}")
        for mine, theirs, name, whose in ((first, history, number, 1), (history, first, 1, number)):
            if alone := sorted(set(mine.seeds) - set(theirs.seeds)):
                has = "has within its budget" if at_budget else "has"
                said.append(f"seeds that {whose} {has} and {name} has not: {', '.join(map(str, alone))}")
        values, reference = (pick_seeds(one, common, metric) for one in (history, first))
        if (lacking := np.isnan(values) | np.isnan(reference)).any():
            shown = ", ".join(str(seed) for seed, lacks in zip(common, lacking, strict=True) if lacks)
            said.append(f"seeds without a value of {metric} in 1 or {number}, left out of the difference: {shown}")
        if not lacking.all():
            rows.append((number, difference(values[~lacking], reference[~lacking])))
        elif common:
            said.append(f"{number} is not compared with 1 seed by seed: no seed has a value of {metric} in both")
        else:
            said.append(f"{number} is not compared with 1 seed by seed: they have no seeds in common that are finite")
    if not rows:
        return None, said
    tested = [found for _, found in rows if found.seeds > 1]
    adjusted = iter(adjust_holm([found.p_apart() for found in tested]))
    out = Table(title=f"{name_value(metric)}, difference from run 1, seed by seed", title_justify="left")
    holm = " (Holm)" if len(tested) > 1 else ""
    for head in ("run", "seeds", "mean difference", "95 % interval", f"p{holm}"):
        out.add_column(head, justify="right", no_wrap=True)
    for number, found in rows:
        known = found.seeds > 1
        low, mean, high = (format_metric(x, metric, "+") for x in (found.low, found.mean, found.high))
        interval = f"[{low}, {high}]" if known else "–"
        out.add_row(str(number), str(found.seeds), mean, interval, f"{next(adjusted):.3g}" if known else "–")
    return out, said


def is_common(metric: str, *configs: Mapping[str, Any]) -> bool:
    """Returns whether a metric is the same in runs whose tasks may differ: a cost, or accuracy by its usual name."""
    if metric != "accuracy":
        return is_cost(metric)
    measured = [((config.get("task") or {}).get("metrics") or {}).get(metric) for config in configs]
    return all(one is None or one["name"] == metric for one in measured)


def list_intervals(runs: Mapping[str, tuple[History, dict]]) -> Iterator[str]:
    """Yields a line if runs are evaluated at different intervals, which shifts what they have reached, and when."""
    every = [config.get("evaluate_every", 1) for _, config in runs.values()]
    if len(set(every)) > 1:
        shown = ", ".join(f"{number} every {one}" for number, one in enumerate(every, start=1))
        yield (
            f"evaluated at different intervals of rounds ({shown}): when a target is reached, and what is "
            "reached within a budget, is known to an interval only"
        )


def find_common_seeds(first: History, second: History) -> list[int]:
    """Returns the seeds that two runs have in common, in order, without those that diverged in either."""
    finite = [{s for s, ended in zip(one.seeds, one.diverged, strict=True) if not ended} for one in (first, second)]
    return sorted(finite[0] & finite[1])


def pick_seeds(history: History, seeds: Sequence[int], metric: str) -> Float[np.ndarray, "k"]:
    """Returns the value of these seeds: the last of a metric, the total of a cost."""
    values = measure_runs(history, metric)
    return np.asarray([values[history.seeds.index(seed)] for seed in seeds], np.float64)


def format_costs_to(
    history: History, target: float, costs: Sequence[str] = ("bytes",), at_budget: bool = False
) -> tuple[str, ...]:
    """Returns rounds and costs to the target as text: medians over seeds, with the number of seeds that never reach it.

    A seed that never reaches it counts as more than all rounds; a cost that was not recorded is –. Of seeds that were
    limited to a budget, it is said that the target lies beyond it, unless all of them diverged.
    """
    rounds = rounds_to(history["accuracy"], target)
    missed = int((rounds > history.rounds).sum())
    middle = float(np.median(np.where(rounds > history.rounds, np.inf, rounds)))
    at_budget = at_budget and bool((history.diverged[rounds > history.rounds] == 0).any())
    never = BEYOND if at_budget else "never"
    first = f"{middle:g}" if np.isfinite(middle) else BEYOND if at_budget else f">{history.rounds}"

    def format_reached(cost: str) -> str:
        if cost not in history:
            return "–"
        middle = float(np.median(cost_to(history["accuracy"], history.cumulative(cost), target)))
        return COSTS[cost](middle) if np.isfinite(middle) else never

    first += f" ({missed} of {len(rounds)} {never})" if 0 < missed < len(rounds) else ""
    return first, *map(format_reached, costs)


BEYOND = "beyond the budget"


def format_cost(found: Mapping[str, Mapping[str, Any]], cost: str) -> str:
    """Returns the mean of a cost as text; – if it was not recorded, or all seeds diverged."""
    known = cost in found and not np.isnan(found[cost]["mean"])
    return COSTS[cost](found[cost]["mean"]) if known else "–"


def format_metric(value: float, metric: str, sign: str = "") -> str:
    """Returns a metric's value as text: four decimals of an accuracy, four digits of what has no fixed range."""
    if "accuracy" in metric:
        return f"{round(value, 4) + 0.0:{sign}.4f}"  # 0.0 is added because -0.0 + 0.0 is 0.0
    return f"{value:{sign}.4g}"


def format_spread(values: Float[np.ndarray, "k"], metric: str) -> str:
    """Returns mean ± standard deviation over the seeds with a value; the mean alone for one seed, – for none."""
    values = values[~np.isnan(values)].astype(np.float64)  # squares of a loss may overflow
    if not len(values):
        return "–"
    spread = f" ± {format_metric(float(np.std(values, ddof=1)), metric)}" if len(values) > 1 else ""
    return format_metric(float(np.mean(values)), metric) + spread


def describe_component(key: str, component: Mapping[str, Any]) -> str:
    """Returns a component with the parameters that differ from its defaults, as in `entropy(epsilon=0.2)`."""
    try:
        usual = KINDS[key].resolve(key, component["name"]) or {}
    except ValueError:  # the strategy is not installed here, but its run can still be compared
        usual = {}
    rest = ", ".join(f"{name}={value}" for name, value in component.items() if value != usual.get(name))
    return component["name"] + (f"({rest})" if rest else "")
