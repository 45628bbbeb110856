"""The numbers of the LEFL report: measures of a cell, and the source's own."""

from __future__ import annotations

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import cost_to, last_mean, rounds_to
from fedjax_sel.papers.lefl.cells import (
    AS_PUBLISHED,
    FEDAVG,
    FEDNOVA,
    FEDPROX,
    LAST,
    LEFL,
    SCAFFOLD,
    TARGETS,
)
from fedjax_sel.papers.paper import Evidence, Result

TABLE_1: dict[str, dict[str, tuple[int, float, float]]] = {
    "CIFAR-10, ResNet-20, 100 @ 10 %": {
        FEDAVG: (256, 2.1, 5.2),
        FEDPROX: (294, 2.1, 6.02),
        SCAFFOLD: (234, 4.3, 9.8),
        FEDNOVA: (221, 4.2, 9.06),
        LEFL: (69, 2.1, 1.4 + 0.208),
    },
    "CIFAR-100, ResNet-20, 100 @ 10 %": {
        FEDAVG: (421, 2.1, 8.6),
        FEDPROX: (501, 2.1, 10.2),
        SCAFFOLD: (294, 4.3, 12.3),
        FEDNOVA: (419, 4.2, 17.18),
        LEFL: (79, 2.1, 1.62 + 0.208),
    },
    "EMNIST, labeldir": {
        FEDAVG: (224, 0.41, 0.89),
        FEDPROX: (372, 0.41, 1.48),
        SCAFFOLD: (174, 0.83, 1.41),
        FEDNOVA: (236, 0.82, 1.88),
        LEFL: (29, 0.41, 0.11 + 0.8),
    },
}
"""Table I: rounds to the target (501: more than 500), MB a round and client, GB in all with the pre-phase."""

MODELS = {
    "CIFAR-10, ResNet-20, 100 @ 10 %": (269_722, 100, 10, 3 * 32 * 32, 10),
    "CIFAR-100, ResNet-20, 100 @ 10 %": (275_572, 100, 10, 3 * 32 * 32, 100),
    "EMNIST, labeldir": (108_478, 1000, 10, 28 * 28, 62),
}
"""Parameters, clients, cohort, numbers of a public row (a byte each) and classes behind Table I."""


def find_data(name: str) -> str:
    """Of an experiment, or of one of its titles.

    >>> data_of("CIFAR-10 (a fiftieth), ResNet-20, 20 clients"), data_of("MNIST, label2 (as published)")
    ('CIFAR-10', 'MNIST')
    """
    return name.partition(",")[0].partition(" (")[0]


def find_target(name: str) -> float:
    """The accuracy to be reached by which claims are judged: the middle one of its data's."""
    targets = TARGETS[find_data(name)]
    return targets[len(targets) // 2]


def compute_gigabytes(name: str, method: str) -> tuple[float, float]:
    """What Table I's rounds cost, in GB (10⁹ bytes): training, both ways, and the pre-phase.

    Four bytes a parameter, down and up; SCAFFOLD twice that; FedNova sends what FedAvg sends. LEFL's pre-phase: model
    and 1000 public rows down, soft labels up, for all clients.
    """
    parameters, clients, m, row, classes = MODELS[name]
    rounds = TABLE_1[name][method][0]
    training = 2 * 4 * parameters * (2 if method == SCAFFOLD else 1) * m * rounds
    before = clients * (4 * parameters + 1000 * row + 4 * 1000 * classes) if method == LEFL else 0
    return training / 1e9, before / 1e9


def measure(name: str, history: History) -> dict[str, np.ndarray]:
    """Numbers a seed of one cell.

    Args:
      name: of the experiment, which says the targets.
      history: of the cell.
    """
    accuracy, paid = history["accuracy"], history.cumulative("bytes")
    out = {
        "accuracy_last": last_mean(accuracy, LAST),
        "best_accuracy": np.nanmax(accuracy, axis=1),
        "cohort": (history.selections >= 0).sum(-1).mean(1),
        "bytes": paid[:, -1],
        "selection_bytes": history.cumulative("selection_bytes_down", "selection_bytes_up")[:, -1],
    }
    for target in TARGETS[find_data(name)]:
        out[f"rounds_to_{target:g}"] = rounds_to(accuracy, target)
        out[f"bytes_to_{target:g}"] = cost_to(accuracy, paid, target)
    return out


def results(scale: str, evidence: Evidence) -> list[Result]:
    """Every measure of every cell, and of every study, beside what is published."""
    out = []
    for (experiment, method), history in evidence.histories.items():
        name = experiment.rpartition(" (")[0]
        theirs = TABLE_1.get(name, {}).get(method) if experiment.endswith(f"({AS_PUBLISHED})") else None
        for metric, value in measure(name, history).items():
            published = float(theirs[0]) if theirs and metric == f"rounds_to_{target_of(name):g}" else None
            out.append(Result(experiment, method, metric, None, tuple(map(float, value)), published))
    for study in ("clusters", "ablation"):
        for name, found in evidence.studies[study].items():
            for metric in ("within", "random", "rand", "entropy_stratified", "entropy_by_labels", "entropy_random"):
                if metric in found:
                    out.append(Result(f"{study}: {name}", LEFL, metric, None, tuple(found[metric])))
    return out
