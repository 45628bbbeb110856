"""The numbers of the LEFL report: measures of a cell, and the source's published numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import cost_to, last_mean, rounds_to
from fedjax_sel.papers.lefl.cells import AS_PUBLISHED, EXPERIMENTS, FULL, LAST, LEFL, SCAFFOLD, TARGETS
from fedjax_sel.papers.measures import fill_diverged, find_best, list_results, measure_once, to_floats
from fedjax_sel.papers.paper import Evidence, Result
from fedjax_sel.papers.published import read_published


def list_published() -> dict[str, dict[str, tuple[int, float, float]]]:
    """Returns Table I by experiment and method: rounds to the target, MB per round and client, total GB."""
    out: dict[str, dict[str, Any]] = {}
    for row in read_published("fedjax_sel.papers.lefl"):
        total = row["gb"] + (row["pre_phase_gb"] or 0.0)
        out.setdefault(row["experiment"], {})[row["method"]] = (int(row["rounds"]), row["mb_per_round"], total)
    return out


TABLE_1 = list_published()
"""Rounds (501: more than 500), MB per round and client, total GB including the pre-phase."""

PUBLISHED_ROUNDS = 500
"""The rounds of the source's runs."""

MODELS = {
    "CIFAR-10, ResNet-20, 100 @ 10 %": (269_722, 100, 10, 3 * 32 * 32, 10),
    "CIFAR-100, ResNet-20, 100 @ 10 %": (275_572, 100, 10, 3 * 32 * 32, 100),
    "EMNIST, labeldir": (108_478, 1000, 10, 28 * 28, 62),
}
"""Parameters, clients, cohort size, values per public example (a byte each) and classes behind Table I."""


def list_own(scale: str) -> list[str]:
    """Returns the experiments on which claims rest: the source's own if the scale has them, else what replaces them."""
    return list(FULL if scale == "full" else EXPERIMENTS[scale])


def list_table_1(scale: str) -> list[str]:
    """Returns the experiments of Table I if the scale has them, else what replaces them."""
    return [name for name in list_own(scale) if scale != "full" or name in TABLE_1]


COSTS = ("bytes", "flops")
"""What a run costs its clients, the selection's part included."""


def find_data(name: str) -> str:
    """Returns the data of an experiment, or of one of its titles.

    >>> find_data("CIFAR-10 (10,000 examples), ResNet-20, 20 clients"), find_data("MNIST, label2 (as published)")
    ('CIFAR-10', 'MNIST')
    """
    return name.partition(",")[0].partition(" (")[0]


def list_targets(name: str) -> tuple[float, ...]:
    """Returns the target accuracies of an experiment: its own, or those of its data set."""
    return TARGETS[name] if name in TARGETS else TARGETS[find_data(name)]


def find_target(name: str) -> float:
    """Returns the target accuracy by which claims are judged: the middle one of the experiment."""
    targets = list_targets(name)
    return targets[len(targets) // 2]


def compute_gigabytes(name: str, method: str) -> tuple[float, float]:
    """Returns the cost of Table I's rounds in GB (10⁹ bytes): of training in both directions, and of the pre-phase.

    A parameter takes four bytes, both down and up; SCAFFOLD sends twice as much, and FedNova as much as FedAvg. In
    LEFL's pre-phase, all clients receive the model and 1000 public examples, and send soft labels.
    """
    parameters, clients, m, example, classes = MODELS[name]
    rounds = TABLE_1[name][method][0]
    training = 2 * 4 * parameters * (2 if method == SCAFFOLD else 1) * m * rounds
    before = clients * (4 * parameters + 1000 * example + 4 * 1000 * classes) if method == LEFL else 0
    return training / 1e9, before / 1e9


@measure_once
def measure(name: str, history: History) -> dict[str, np.ndarray]:
    """Returns the measures of one cell, one number per seed.

    Args:
      name: of the experiment, which determines the targets.
      history: of the cell.
    """
    accuracy, paid = history["accuracy"], {unit: history.cumulative(unit) for unit in COSTS}
    out = {
        "accuracy_last": last_mean(accuracy, LAST),
        "noise_last": fill_diverged(history, measure_noise(accuracy), 1.0),
        "best_accuracy": find_best(history),
        "cohort": (history.selections >= 0).sum(-1).mean(1),
        **{unit: spent[:, -1] for unit, spent in paid.items()},
        "selection_bytes": history.cumulative("selection_bytes_down", "selection_bytes_up")[:, -1],
    }
    for target in list_targets(name):
        out[f"rounds_to_{target:g}"] = rounds_to(accuracy, target)
        out |= {f"{unit}_to_{target:g}": cost_to(accuracy, spent, target) for unit, spent in paid.items()}
    return out


def measure_noise(accuracy: np.ndarray) -> np.ndarray:
    """Returns the standard deviation, with denominator n - 1, of each seed's last evaluated accuracies.

    >>> measure_noise(np.array([[0.9, *[0.5, 0.7] * 5]])).round(3)
    array([0.105])
    """
    return np.array([np.std(row[~np.isnan(row)][-LAST:], ddof=1) for row in accuracy])


def find_published(experiment: str, method: str, metric: str) -> float | None:
    """Returns the source's rounds to the target for a cell as published; None if it gives none, or "more than 500"."""
    name = experiment.rpartition(" (")[0]
    theirs = TABLE_1.get(name, {}).get(method) if experiment.endswith(f"({AS_PUBLISHED})") else None
    if theirs is None or theirs[0] > PUBLISHED_ROUNDS or metric != f"rounds_to_{find_target(name):g}":
        return None
    return float(theirs[0])


KEPT = (
    *("within", "random", "rand", "entropy_stratified", "entropy_by_labels", "entropy_random"),
    *("entropy_proportional", "entropy_transposed", "pairs", "row_differences", "rows"),
)
"""The studies' numbers that are listed as results."""


def list_all_results(scale: str, evidence: Evidence) -> list[Result]:
    """Returns every measure of every cell and study, beside the published number."""
    out = list_results(
        evidence.histories,
        lambda experiment, history: measure(experiment.rpartition(" (")[0], history),
        find_published,
    )
    studies = [study for study in ("clusters", "ablation") if study in evidence.studies]
    return out + [
        Result(f"{study}: {name}", LEFL, metric, None, to_floats(found[metric]))
        for study in studies
        for name, found in evidence.studies[study].items()
        for metric in KEPT
        if metric in found
    ]
