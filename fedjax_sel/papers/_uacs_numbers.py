"""The numbers of the UACS-FL report: measures of a cell, comparisons between methods, tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

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
from fedjax_sel.papers._paper import Evidence, Histories, Result, Table

ENTROPY, GREEDY, GRADIENT, RANDOM, ROBIN, SLOTS = (
    "Entropy Based",
    "Entropy+Eps-Greedy",
    "Gradient Norm-Based",
    "Random Selection",
    "Round-Robin (control)",
    "Entropy+Eps-Greedy, a coin a slot",
)
SETTINGS = {1: "Experiment 1", 2: "Experiment 2", 3: "Experiment 3"}
BOUNDARY, MORE_BOUNDARY = 6, 10
MORE = f"{MORE_BOUNDARY} boundary clients, m = {MORE_BOUNDARY}"
"""The variation with more clients at the boundary."""
TARGET = 0.95
UNKNOWN = Difference(0.0, -np.inf, np.inf, 1.0, 0)
"""Of two methods neither of which ever reached the target."""


def measures(histories: Histories, key: tuple[str, str]) -> dict[str, np.ndarray]:
    """Numbers a seed of one cell."""
    history = histories[key]
    fifth = history.rounds // 5
    near = members(history.selections, np.arange(MORE_BOUNDARY if key[0].endswith(MORE) else BOUNDARY))
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


def results(scale: str, evidence: Evidence) -> list[Result]:
    """Every measure of every cell, and accuracy along the way. The paper publishes no numbers."""
    out, histories = [], evidence.histories
    for (experiment, method), history in histories.items():
        for share in (0.1, 0.2, 0.5, 1.0):
            t = max(1, round(share * history.rounds))
            out.append(Result(experiment, method, "accuracy", t, tuple(map(float, history["accuracy"][:, t - 1]))))
        for metric, value in measures(histories, (experiment, method)).items():
            out.append(Result(experiment, method, metric, None, tuple(map(float, value))))
    return out


def compared(histories: Histories, first: str, second: str, metric: str, change: str = "") -> dict[str, Difference]:
    """`first - second` in each setting."""
    out = {}
    for title in SETTINGS.values():
        experiment = title + (f", {change}" if change else "")
        a, b = (measures(histories, (experiment, method))[metric] for method in (first, second))
        never = metric.startswith("rounds_to") and min(a.min(), b.min()) > histories[experiment, first].rounds
        out[title] = UNKNOWN if never else difference(a, b)
    return out


def at_random_budget(histories: Histories, what: str) -> dict[str, Difference]:
    """Accuracy of entropy selection when it has spent what random selection spends in the whole run, minus random's."""
    out = {}
    for title in SETTINGS.values():
        entropy, random = histories[title, ENTROPY], histories[title, RANDOM]
        reached = at_cost(entropy["accuracy"], entropy.cumulative(what), random.cumulative(what)[:, -1])
        out[title] = difference(reached, random["accuracy"][:, -1])
    return out


def cell_text(values: np.ndarray, digits: int, limit: float | None = None) -> str:
    """Mean ± standard deviation; for censored numbers the median, `>limit` where it was not reached."""
    if limit is not None:
        middle = float(np.median(values))
        missed = int(np.sum(~np.isfinite(values) | (values > limit)))
        text = f">{limit:.{digits}g}" if middle > limit else f"{middle:.{digits}g}"
        return text + (f" ({missed} of {len(values)} never)" if missed else "")
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {spread:.{digits}f}"


def main_tables(histories: Histories) -> list[Table]:
    """Accuracy, selections and what they cost."""
    main = [key for title in SETTINGS.values() for key in histories if key[0] == title]
    rows, chosen, costs = [], [], []
    for key in main:
        value, rounds = measures(histories, key), histories[key].rounds
        rows.append(
            (
                *key,
                cell_text(value["final_accuracy"], 3),
                cell_text(value["mean_accuracy"], 3),
                cell_text(value[f"rounds_to_{TARGET}"], 4, rounds),
            )
        )
        chosen.append(
            (
                *key,
                cell_text(value["boundary_clients_after_first_fifth"], 2),
                cell_text(value["coverage"], 2),
                cell_text(value["jain"], 2),
            )
        )
        costs.append(
            (
                *key,
                f"{value['bytes'].mean() / 1e6:.3g}",
                f"{value['flops'].mean() / 1e6:.3g}",
                cell_text(value[f"bytes_to_{TARGET}"] / 1e6, 3, 1e9).replace(">1e+09", "never"),
                cell_text(value[f"flops_to_{TARGET}"] / 1e6, 3, 1e9).replace(">1e+09", "never"),
            )
        )
    return [
        Table(
            "Accuracy, mean ± standard deviation over seeds",
            (
                "experiment",
                "method",
                "final accuracy",
                "mean over rounds",
                f"rounds to {TARGET} (median)",
            ),
            tuple(rows),
        ),
        Table(
            "Who was selected",
            (
                "experiment",
                "method",
                f"boundary clients of {BOUNDARY}, after a fifth of the rounds",
                "coverage",
                "Jain",
            ),
            tuple(chosen),
            "Coverage: share of all clients selected at least once. Jain's index of the selection counts: 1 is even.",
        ),
        Table(
            "What it cost, all clients together",
            ("experiment", "method", "MB", "MFLOP", f"MB to {TARGET} (median)", f"MFLOP to {TARGET} (median)"),
            tuple(costs),
            "Entropy and gradient norm send the model to all clients and pass all rows through it in every round.",
        ),
    ]


def sensitivity(histories: Histories, variations: Iterable[str]) -> Table:
    """How the conclusions move with cohort, learning rate, epochs, model and boundary clients."""
    rows = []
    for change in ("", *variations):
        against = [compared(histories, ENTROPY, other, "mean_accuracy", change) for other in (RANDOM, GRADIENT)]
        for title in SETTINGS.values():
            texts = [f"{d[title].mean:+.4f} [{d[title].low:+.4f}, {d[title].high:+.4f}]" for d in against]
            best = measures(histories, (title + (f", {change}" if change else ""), ENTROPY))["final_accuracy"]
            rows.append((change or "as above", title, cell_text(best, 3), *texts))
    return Table(
        "How the conclusion moves: mean accuracy over the rounds, difference with 95 % interval",
        ("variation", "experiment", "entropy, final accuracy", "entropy - random", "entropy - gradient norm"),
        tuple(rows),
    )
