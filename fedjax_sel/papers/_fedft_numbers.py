"""The numbers of the FedFT-EDS report: measures of a cell, and the source's own."""

from __future__ import annotations

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import fill_missing
from fedjax_sel.papers._fedft_cells import (
    ALL,
    CENTRAL,
    CIFAR10,
    CIFAR100,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    RDS,
    RDS50,
    SCRATCH,
    SPEECH,
    STRONG,
    WEAK,
    few,
    left,
    many,
)
from fedjax_sel.papers._paper import Evidence, Result

FLOPS_A_SECOND = 1e9
"""Of the client that simulated training seconds are of."""

TABLE_2: dict[str, tuple[float, ...]] = {
    SCRATCH: (67.46, 79.53, 44.66, 51.44),
    FEDAVG: (75.18, 81.73, 51.18, 55.83),
    FEDAVG_RDS: (75.05, 81.37, 50.22, 53.27),
    FEDPROX: (78.48, 80.96, 50.80, 55.43),
    FEDPROX_RDS: (76.41, 80.28, 50.18, 53.44),
    RDS: (81.11, 85.51, 53.66, 56.57),
    EDS: (83.82, 86.24, 54.04, 57.03),
    CENTRAL: (87.47, 87.47, 58.79, 58.79),
    f"{FEDAVG} ({CIFAR100})": (70.46, 80.70),
}
"""Tables II and I: CIFAR-10 with α = 0.1 and 0.5, CIFAR-100 likewise, in per cent."""

TABLE_3: dict[str, tuple[float, ...]] = {
    SCRATCH: (55.79, 72.00, 25.97, 30.66),
    left("full"): (77.54, 80.00, 46.60, 49.78),
    left("20 %"): (77.03, 80.77, 45.94, 49.80),
    left("10 %"): (75.20, 80.49, 44.17, 49.20),
    RDS: (78.20, 80.25, 47.64, 50.23),
    EDS: (78.92, 81.74, 48.22, 50.74),
    ALL: (78.96, 81.26, 50.39, 53.23),
    RDS50: (79.02, 81.57, 50.51, 53.33),
    EDS50: (79.80, 82.46, 51.54, 54.22),
}
"""Table III, likewise."""

TABLE_4 = {SCRATCH: 41.33, FEDAVG: 55.40, RDS: 54.96, EDS: 55.60, RDS50: 55.56, EDS50: 59.32, CENTRAL: 91.22}
"""Table IV, Speech Commands."""


def published(experiment: str, method: str) -> float | None:
    """The source's accuracy, from 0 to 1; None where it gives none.

    >>> published(few(CIFAR10, STRONG), EDS), published("elsewhere", EDS)
    (0.8382, None)
    """
    for naming, table in ((few, TABLE_2), (many, TABLE_3)):
        for i, (name, alpha) in enumerate((n, a) for n in (CIFAR10, CIFAR100) for a in (STRONG, WEAK)):
            if experiment == naming(name, alpha) and i < len(table.get(method, ())):
                return table[method][i] / 100
    if experiment in {many(name, STRONG) for name in SPEECH.values()} and method in TABLE_4:
        return TABLE_4[method] / 100
    return None


def measures(history: History) -> dict[str, np.ndarray]:
    """Numbers a seed of one cell."""
    accuracy = history["accuracy"]
    flops = history.cumulative("flops")[:, -1]
    best = np.nanmax(accuracy, axis=1)
    return {
        "accuracy_last": fill_missing(accuracy)[:, -1],
        "best_accuracy": best,
        "client_seconds": flops / FLOPS_A_SECOND,
        "efficiency": 100 * best / (flops / FLOPS_A_SECOND),
        "bytes": history.cumulative("bytes")[:, -1],
        "selection_share": history.cumulative("selection_flops")[:, -1] / flops,
    }


def results(scale: str, evidence: Evidence) -> list[Result]:
    """Every measure of every cell, beside what is published."""
    out = []
    for (experiment, method), history in evidence.histories.items():
        theirs = published(experiment, method)
        for metric, value in measures(history).items():
            of_paper = theirs if metric == "best_accuracy" else None
            out.append(Result(experiment, method, metric, None, tuple(map(float, value)), of_paper))
    for name, row in evidence.studies["alike"]["cells"].items():
        for level, value in zip(evidence.studies["alike"]["levels"], np.array(row["mean"]).T, strict=True):
            out.append(Result(f"CKA of clients' models, {name}", level, "cka", 1, tuple(map(float, value))))
    for rho, row in evidence.studies["entropies"]["rho"].items():
        for metric in ("correlation", "overlap"):
            out.append(Result(f"entropy and margin, ρ = {rho}", EDS, metric, None, tuple(row[metric])))
    return out
