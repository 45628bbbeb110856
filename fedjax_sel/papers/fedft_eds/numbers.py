"""The numbers of the FedFT-EDS report: measures of a cell, and the source's published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import fill_missing
from fedjax_sel.papers.fedft_eds.methods import EDS, SPEECH, name_few, name_many
from fedjax_sel.papers.measures import find_best, list_results, measure_once, to_floats
from fedjax_sel.papers.paper import Evidence, Result, join
from fedjax_sel.papers.published import read_published

FLOPS_A_SECOND = 1e9
"""Speed of the client for which training seconds are simulated."""

EARLY = 0.4
"""Fraction of the rounds: section IV-F has the other methods close the gap from round 20, which is 0.4 of our 50."""


def list_published() -> dict[tuple[str, str], float]:
    """Returns the source's accuracies, from 0 to 1, by experiment and method; Table IV is for both kinds of speech."""
    out = {}
    for row in read_published("fedjax_sel.papers.fedft_eds"):
        for data in SPEECH.values() if row["source"] == "Table IV" else (row["data"],):
            name = name_few if row["clients"] == "few" else name_many
            out[name(data, row["alpha"]), row["method"]] = row["accuracy"] / 100
    return out


PUBLISHED = list_published()


def find_published(experiment: str, method: str) -> float | None:
    """Returns the source's accuracy, from 0 to 1; None if it gives none.

    >>> find_published("CIFAR-10, few clients, α = 0.1", "FedFT-EDS (10 %)"), find_published("elsewhere", "FedAvg")
    (0.8382, None)
    """
    return PUBLISHED.get((experiment, method))


@measure_once
def measure(history: History) -> dict[str, np.ndarray]:
    """Returns the measures of one cell, one number per seed."""
    accuracy = history["accuracy"]
    flops = history.cumulative("flops")[:, -1]
    best = find_best(history)
    return {
        "accuracy_early": np.nanmean(accuracy[:, : round(EARLY * history.rounds)], axis=1),
        "accuracy_last": fill_missing(accuracy)[:, -1],
        "best_accuracy": best,
        "client_seconds": flops / FLOPS_A_SECOND,
        "efficiency": 100 * best / (flops / FLOPS_A_SECOND),
        "bytes": history.cumulative("bytes")[:, -1],
        "selection_share": history.cumulative("selection_flops")[:, -1] / flops,
    }


def list_all_results(scale: str, evidence: Evidence) -> list[Result]:
    """Returns every measure of every cell, beside the published number, and the results of the studies."""
    out = list_results(
        evidence.histories,
        lambda _, history: measure(history),
        lambda experiment, method, metric: find_published(experiment, method) if metric == "best_accuracy" else None,
    )
    return out + join(
        lambda: list_alikeness(evidence.studies["alike"]), lambda: list_correlations(evidence.studies["entropies"])
    )


def list_alikeness(study: Mapping[str, Any]) -> Iterator[Result]:
    """Yields the CKA of clients' models at each level."""
    for name, row in study["cells"].items():
        for level, value in zip(study["levels"], np.array(row["mean"]).T, strict=True):
            yield Result(f"CKA of clients' models, {name}", level, "cka", 1, to_floats(value))


def list_correlations(study: Mapping[str, Any]) -> Iterator[Result]:
    """Yields how similar the orders by entropy and by margin are."""
    for rho, row in study["rho"].items():
        for metric in ("correlation", "overlap"):
            yield Result(f"entropy and margin, ρ = {rho}", EDS, metric, None, tuple(row[metric]))
