"""The tables of the UACS-FL report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.data.uacs import SHAPE
from fedjax_sel.metrics import Difference
from fedjax_sel.papers.judging import (
    Judgement,
    ask_comparable,
    ask_not_smaller,
    compare_with,
    format_mean_std,
    judge,
    judge_larger,
)
from fedjax_sel.papers.paper import Evidence, Histories, Table, join
from fedjax_sel.papers.uacs.cells import (
    BOUNDARY,
    ENTROPY,
    GRADIENT,
    GREEDY,
    LONG,
    MORE,
    MORE_BOUNDARY,
    RANDOM,
    SETTINGS,
    VARIATIONS,
    name_experiment,
)
from fedjax_sel.papers.uacs.numbers import (
    COMPARABLE,
    NOTICED,
    TARGET,
    compare,
    measure,
    measure_long_run,
    subtract,
)
from fedjax_sel.report.markdown import format_number


def make_tables(scale: str, evidence: Evidence) -> list[Table]:
    """Returns accuracy and what it cost; how the conclusion moves, where it was varied."""
    histories = evidence.histories
    more = (tabulate_long_runs, tabulate_sensitivity, tabulate_variations) if scale == "full" else ()
    return join(
        lambda: [tabulate_accuracy(histories)],
        lambda: [tabulate_selections(histories)],
        lambda: [tabulate_costs(histories)],
        *(lambda one=one: [one(histories)] for one in more),
        lambda: tabulate_generator(histories, evidence.studies["generator"]),
    )


def list_main_cells(histories: Histories) -> list[tuple[str, str]]:
    """Returns the keys of all cells but the variations'."""
    return [key for title in SETTINGS.values() for key in histories if key[0] == title]


def format_median(values: np.ndarray, digits: int, limit: float) -> str:
    """Returns the median of censored numbers, `>limit` where it was not reached, and how many were not."""
    middle = float(np.median(values))
    missed = int(np.sum(~np.isfinite(values) | (values > limit)))
    text = f">{limit:.{digits}g}" if middle > limit else f"{middle:.{digits}g}"
    return text + (f" ({missed} of {len(values)} never)" if missed else "")


def tabulate_accuracy(histories: Histories) -> Table:
    """Returns accuracies, and rounds to the target."""
    rows = []
    for key in list_main_cells(histories):
        value = measure(key[0], histories[key])
        rows.append(
            (
                *key,
                format_mean_std(value["final_accuracy"], 3),
                format_mean_std(value["mean_accuracy"], 3),
                format_median(value[f"rounds_to_{TARGET}"], 4, histories[key].rounds),
            )
        )
    return Table(
        "Accuracy, mean ± standard deviation over seeds",
        ("experiment", "method", "final accuracy", "mean over rounds", f"rounds to {TARGET} (median)"),
        tuple(rows),
    )


def tabulate_selections(histories: Histories) -> Table:
    """Returns who was selected."""
    rows = []
    for key in list_main_cells(histories):
        value = measure(key[0], histories[key])
        names = ("boundary_clients_after_first_fifth", "coverage", "jain")
        rows.append((*key, *(format_mean_std(value[name], 2) for name in names)))
    return Table(
        "Who was selected",
        (
            "experiment",
            "method",
            f"boundary clients of {BOUNDARY}, after a fifth of the rounds",
            "coverage",
            "Jain",
        ),
        tuple(rows),
        "Coverage: share of all clients selected at least once. Jain's index of the selection counts: 1 is even.",
    )


def tabulate_costs(histories: Histories) -> Table:
    """Returns what was sent and computed, in all and up to the target."""
    rows = []
    for key in list_main_cells(histories):
        value = measure(key[0], histories[key])
        reached = (
            format_median(value[f"{cost}_to_{TARGET}"] / 1e6, 3, value[cost].max() / 1e6) for cost in ("bytes", "flops")
        )
        rows.append((*key, f"{value['bytes'].mean() / 1e6:.3g}", f"{value['flops'].mean() / 1e6:.3g}", *reached))
    return Table(
        "What it cost, all clients together",
        ("experiment", "method", "MB", "MFLOP", f"MB to {TARGET} (median)", f"MFLOP to {TARGET} (median)"),
        tuple(rows),
        "Entropy and gradient norm send the model to all clients and pass all examples through it in every round.",
    )


def tabulate_long_runs(histories: Histories) -> Table:
    """Returns entropy selection beside random selection that may send as many bytes."""
    rows = []
    for setting, title in SETTINGS.items():
        long = histories[name_experiment(setting, LONG), RANDOM]
        entropy, random = measure(title, histories[title, ENTROPY]), measure(name_experiment(setting, LONG), long)
        sent = entropy["bytes"].max() / 1e6
        reached = (format_median(value[f"bytes_to_{TARGET}"] / 1e6, 3, sent) for value in (entropy, random))
        accuracy = entropy["final_accuracy"], measure_long_run(histories, setting)
        rows.append((title, f"{sent:.3g}", *(format_mean_std(value, 3) for value in accuracy), *reached))
    return Table(
        "Random selection with entropy selection's bytes",
        (
            "experiment",
            "MB of entropy selection",
            "entropy, final accuracy",
            "random at as many bytes",
            f"entropy, MB to {TARGET} (median)",
            f"random, MB to {TARGET} (median)",
        ),
        tuple(rows),
        f"Random selection went on for {long.rounds} rounds.",
    )


def tabulate_generator(histories: Histories, study: Mapping[str, Any]) -> list[Table]:
    """Returns the verdicts on federations of other shapes; no table where no shape was varied."""
    if not study:
        return []
    methods = (ENTROPY, GRADIENT, RANDOM)
    default = {title: {m: measure(title, histories[title, m]) for m in methods} for title in SETTINGS.values()}
    shapes, rounds = {"default": default, **study}, next(iter(histories.values())).rounds
    return [
        Table(
            "How the verdicts hang on the generator: one of its numbers changed at a time, pooled effect",
            (
                "generator",
                "random underperforms (entropy - random)",
                "gradient norm comparable (gradient norm - entropy)",
                f"entropy faster (rounds to {TARGET}, gradient norm - entropy)",
                f"top m at the boundary (of {BOUNDARY}, minus 5)",
            ),
            tuple((shape, *judge_shape({**default, **found}, rounds)) for shape, found in shapes.items()),
            f"Default: amplitude {SHAPE.amplitude:g}, strip {SHAPE.strip:g}, margin {SHAPE.margin:g}, box "
            f"{SHAPE.box:g} (of setting 3 alone). Judged as the claims above.",
        )
    ]


def tabulate_variations(histories: Histories) -> Table:
    """Returns the verdicts under every variation."""
    methods = (ENTROPY, GRADIENT, RANDOM, GREEDY)
    rows = []
    for change in ("", *VARIATIONS):
        of = {title: name_experiment(setting, change) for setting, title in SETTINGS.items()}
        found = {title: {m: measure(name, histories[name, m]) for m in methods} for title, name in of.items()}
        rounds = histories[of[SETTINGS[1]], ENTROPY].rounds
        exploring = judge_larger(compare(histories, GREEDY, ENTROPY, "mean_accuracy", change), NOTICED)
        verdicts = judge_shape(found, rounds, LEAST.get(change, 5.0))
        rows.append((change or "as above", *verdicts, show_judgement(exploring)))
    return Table(
        "How the verdicts hang on the other settings that the source leaves open: one changed at a time, pooled effect",
        (
            "variation",
            "random underperforms (entropy - random)",
            "gradient norm comparable (gradient norm - entropy)",
            f"entropy faster (rounds to {TARGET}, gradient norm - entropy)",
            "top m at the boundary (minus five sixths of those that can be)",
            "exploring is better (ε = 0.1 - ε = 0)",
        ),
        tuple(rows),
        "Judged as the claims above. At the boundary: of 6 clients, of 3 slots with m = 3, and of 10 clients of 10.",
    )


LEAST = {"m = 3": 2.5, MORE: MORE_BOUNDARY * 5 / 6}
"""Boundary clients in a cohort, at least, for the highest entropies to be theirs; elsewhere 5 of 6."""


def judge_shape(found: Mapping[str, Any], rounds: int, least: float = 5.0) -> tuple[str, ...]:
    """Returns the four verdicts on one shape, with their pooled effects, of runs of so many rounds."""

    def take(method: str, metric: str) -> dict[str, np.ndarray]:
        return {title: np.array(by[method][metric], np.float64) for title, by in found.items()}

    def compare_all(first: str, second: str, metric: str) -> dict[str, Difference]:
        one, other = take(first, metric), take(second, metric)
        return {title: subtract(one[title], other[title], metric, rounds) for title in one}

    near = take(ENTROPY, "boundary_clients_after_first_fifth")
    judged = (
        judge_larger(compare_all(ENTROPY, RANDOM, "mean_accuracy"), NOTICED),
        judge(ask_comparable(COMPARABLE), compare_all(GRADIENT, ENTROPY, "mean_accuracy")),
        judge_larger(compare_all(GRADIENT, ENTROPY, f"rounds_to_{TARGET}"), 1.0),
        judge(ask_not_smaller(), {title: compare_with(value, least) for title, value in near.items()}),
    )
    return tuple(map(show_judgement, judged))


def show_judgement(judgement: Judgement) -> str:
    """Returns a verdict and its pooled effect."""
    return f"{judgement.verdict}: {format_number(judgement.effect['pooled'])}"


def tabulate_sensitivity(histories: Histories) -> Table:
    """Returns how the conclusions move with cohort, learning rate, epochs, model and boundary clients."""
    rows = []
    for change in ("", *VARIATIONS):
        against = [compare(histories, ENTROPY, other, "mean_accuracy", change) for other in (RANDOM, GRADIENT)]
        for setting, title in SETTINGS.items():
            texts = [f"{d[title].mean:+.4f} [{d[title].low:+.4f}, {d[title].high:+.4f}]" for d in against]
            experiment = name_experiment(setting, change)
            best = measure(experiment, histories[experiment, ENTROPY])["final_accuracy"]
            rows.append((change or "as above", title, format_mean_std(best, 3), *texts))
    return Table(
        "How the conclusion moves: mean accuracy over the rounds, difference with 95 % interval",
        ("variation", "experiment", "entropy, final accuracy", "entropy - random", "entropy - gradient norm"),
        tuple(rows),
        list_behind(histories),
    )


def list_behind(histories: Histories) -> str:
    """Returns a sentence on where entropy is certainly behind random selection or gradient norm."""
    behind = [
        f"{title} under {change or 'the settings above'}, by {-d.mean:.4f} behind {other.lower()}"
        for change in ("", *VARIATIONS)
        for other in (RANDOM, GRADIENT)
        for title, d in compare(histories, ENTROPY, other, "mean_accuracy", change).items()
        if d.high < 0
    ]
    return f"Entropy is behind, its interval below 0: {'; '.join(behind) or 'nowhere'}."
