"""The tables of the UACS-FL report."""

from __future__ import annotations

import itertools

import numpy as np

from fedjax_sel.papers.measures import format_mean_std
from fedjax_sel.papers.paper import Evidence, Histories, Table, join
from fedjax_sel.papers.uacs.cells import (
    ALONE,
    BOUNDARY,
    ENTROPY,
    EVERYBODY,
    GRADIENT,
    GREEDY,
    LONG,
    OTHERS,
    RANDOM,
    SETTINGS,
    VARIATIONS,
    name_experiment,
)
from fedjax_sel.papers.uacs.numbers import TARGET, compare, find_paid, measure
from fedjax_sel.papers.uacs.robustness import tabulate_generator, tabulate_variations


def make_tables(scale: str, evidence: Evidence) -> list[Table]:
    """Returns accuracy and what it cost; how the conclusion moves, where it was varied."""
    histories = evidence.histories
    more = (tabulate_parts, tabulate_equal_costs, tabulate_sensitivity, tabulate_variations) if scale == "full" else ()
    return join(
        lambda: [tabulate_accuracy(histories)],
        lambda: [tabulate_selections(histories)],
        lambda: [tabulate_costs(histories)],
        *(lambda one=one: [one(histories)] for one in more),
        lambda: tabulate_generator(histories, evidence.studies["generator"], evidence.studies["distances"]),
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
            f"boundary clients of {BOUNDARY} selected, after the first fifth of the rounds",
            "coverage",
            "Jain",
        ),
        tuple(rows),
        "Coverage is the share of all clients that were selected at least once. Jain's index is that of the selection "
        "counts; 1 is even.",
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
        "Cost of all clients together",
        ("experiment", "method", "MB", "MFLOP", f"MB to {TARGET} (median)", f"MFLOP to {TARGET} (median)"),
        tuple(rows),
        "Entropy and gradient norm send the model to all clients and pass all examples through it in every round.",
    )


def tabulate_parts(histories: Histories) -> Table:
    """Returns what all clients learn, and what some of them do."""
    rows = []
    for (setting, title), part in itertools.product(SETTINGS.items(), ("", ALONE, OTHERS)):
        key = name_experiment(setting, part), EVERYBODY
        value = measure(key[0], histories[key])
        final, mean = (format_mean_std(value[name], 3) for name in ("final_accuracy", "mean_accuracy"))
        target = format_median(value[f"rounds_to_{TARGET}"], 4, histories[key].rounds)
        rows.append((title, part or "all clients", final, mean, target, f"{value['flops'].mean() / 1e6:.3g}"))
    return Table(
        "What the boundary clients contribute: all of these clients train in every round",
        ("experiment", "clients", "final accuracy", "mean over rounds", f"rounds to {TARGET} (median)", "MFLOP"),
        tuple(rows),
    )


def tabulate_equal_costs(histories: Histories) -> Table:
    """Returns what each method has reached when it has spent what random, or entropy selection, spends in all."""
    budgets = [(payer, unit) for unit in ("bytes", "flops") for payer in (RANDOM, ENTROPY)]
    rows = []
    for setting, title in SETTINGS.items():
        for method in (ENTROPY, GREEDY, GRADIENT, RANDOM, EVERYBODY):
            reached = (find_paid(histories, setting, method, unit, payer) for payer, unit in budgets)
            rows.append((title, method, *(format_mean_std(value, 3) for value in reached)))
    first = SETTINGS[1]
    spent = [measure(first, histories[first, payer])[unit].max() / 1e6 for payer, unit in budgets]
    heads = [
        f"{payer}'s {cost:.3g} {'MB' if unit == 'bytes' else 'MFLOP'}"
        for (payer, unit), cost in zip(budgets, spent, strict=True)
    ]
    long = histories[name_experiment(1, LONG), RANDOM].cumulative("bytes")
    paid = int((long[0] <= histories[first, ENTROPY].cumulative("bytes")[0, -1]).sum())
    return Table(
        "Accuracy at equal cost, including the cost of selection",
        ("experiment", "method", *heads),
        tuple(rows),
        "Mean ± standard deviation over seeds, after the last round within the budget, which is what random or "
        f"entropy selection spends in {histories[first, ENTROPY].rounds} rounds. Random selection ran for longer: "
        f"entropy selection's bytes pay for {paid} of its rounds.",
    )


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
        "How the conclusion depends on the settings: difference in mean accuracy over the rounds, with 95 % interval",
        ("variation", "experiment", "entropy, final accuracy", "entropy - random", "entropy - gradient norm"),
        tuple(rows),
        list_behind(histories),
    )


def list_behind(histories: Histories) -> str:
    """Returns a sentence on where entropy is certainly behind random selection or gradient norm."""
    behind = [
        f"{title} with {change or 'the settings above'}, {-d.mean:.4f} behind {other.lower()}"
        for change in ("", *VARIATIONS)
        for other in (RANDOM, GRADIENT)
        for title, d in compare(histories, ENTROPY, other, "mean_accuracy", change).items()
        if d.high < 0
    ]
    return f"Cases in which entropy is behind, with an interval below 0: {'; '.join(behind) or 'none'}."
