"""The numbers of the GPFL report: measures of a cell, and the source's published numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import coverage, fill_missing, jain, last_mean, rounds_to
from fedjax_sel.papers.gpfl.cells import (
    AS_PUBLISHED,
    CIFAR,
    DIGITS,
    FASHION,
    LAST,
    PARTITIONS,
    RANDOM,
    name_experiment,
)
from fedjax_sel.papers.measures import fill_diverged, find_best, list_results, measure_once
from fedjax_sel.papers.paper import Evidence, Histories, Result
from fedjax_sel.papers.published import read_published

CIFAR_ROUNDS = 2000
"""Rounds of the source's runs on CIFAR-10."""

LATE = 100
"""Final rounds in which the different clients are counted."""

SHARES = {"15 %": 0.15, "50 %": 0.5}
"""Fractions of the rounds at which Table II reports accuracy."""

COLUMNS = {"accuracy_at_15": "at_15", "accuracy_at_50": "at_50", "accuracy_last": "last", "deviation_last": "deviation"}
"""Columns of Table II, by our measure."""

PUBLISHED = {(row["data"], row["partition"], row["method"]): row for row in read_published("fedjax_sel.papers.gpfl")}
"""Rows of Table II by data, partition and method."""


def find_published(data: str, partition: str, method: str, column: str) -> float | None:
    """Returns a number of Table II; None if it has none.

    Args:
      data, partition, method: of the cell.
      column: `"at_15"`, `"at_50"`, `"last"` or `"deviation"`.
    """
    return PUBLISHED.get((data, partition, method), {}).get(column)


def list_fair_runs(histories: Histories) -> Iterator[tuple[str, str, str]]:
    """Yields (data, partition, experiment) of every experiment that was run under FedCor's settings."""
    experiments = {experiment for experiment, _ in histories}
    for data in (FASHION, DIGITS, CIFAR):
        for partition in PARTITIONS:
            if name_experiment(data, partition) in experiments:
                yield data, partition, name_experiment(data, partition)


def find_data(histories: Histories) -> str:
    """Returns Fashion-MNIST, or the digits that stand for it at `smoke`."""
    return DIGITS if any(experiment.startswith(DIGITS) for experiment, _ in histories) else FASHION


def list_partitions(histories: Histories) -> list[str]:
    """Returns the partitions on which the data of `find_data` were run."""
    return [p for p in PARTITIONS if (name_experiment(find_data(histories), p), RANDOM) in histories]


def read_at_share(history: History, share: float) -> np.ndarray:
    """Returns the accuracy of each seed after this fraction of the rounds."""
    return fill_missing(history["accuracy"])[:, max(1, round(share * history.rounds)) - 1]


def measure_last_deviation(history: History) -> np.ndarray:
    """Returns the largest absolute deviation of one of the last 10 accuracies from their mean."""
    last = history["accuracy"][:, -LAST:]
    return np.abs(last - last.mean(1, keepdims=True)).max(1)


def find_coverage_round(history: History) -> np.ndarray:
    """Returns the first round (from 1) by which every client was selected; one more than the last if there is none."""
    done = coverage(history.selections, history.num_clients) >= 1
    return np.where(done.any(1), done.argmax(1) + 1, history.rounds + 1)


def count_late(history: History) -> np.ndarray:
    """Returns how many different clients were selected in the last 100 rounds."""
    late = history.selections[:, -LATE:]
    return np.array([len(np.unique(seed[seed >= 0])) for seed in late])


@measure_once
def measure(history: History) -> dict[str, np.ndarray]:
    """Returns the measures of one cell, one number per seed."""
    accuracy, counts = history["accuracy"], history.counts()
    return {
        **{f"accuracy_at_{name.replace(' %', '')}": read_at_share(history, share) for name, share in SHARES.items()},
        "accuracy_last": last_mean(accuracy, LAST),
        "deviation_last": fill_diverged(history, measure_last_deviation(history), 1.0),
        "best_accuracy": find_best(history),
        "rounds_to_0.6": rounds_to(accuracy, 0.6),
        "coverage_round": find_coverage_round(history),
        "most_selected": counts.max(1),
        "selected_late": count_late(history),
        "jain": jain(counts),
        "bytes": history.cumulative("bytes")[:, -1],
        "flops": history.cumulative("flops")[:, -1],
    }


def list_all_results(scale: str, evidence: Evidence) -> list[Result]:
    """Returns every measure of every cell, beside the published number if it is for as many rounds."""

    def published(experiment: str, method: str, metric: str) -> float | None:
        there = evidence.histories[experiment, method]
        return find_published_result(experiment, method, metric) if is_as_long(experiment, there) else None

    return list_results(evidence.histories, lambda _, history: measure(history), published)


def is_as_long(experiment: str, history: History) -> bool:
    """Returns whether a run has at least as many rounds as the source's, or is on other data than CIFAR-10."""
    return not experiment.startswith(CIFAR) or history.rounds >= CIFAR_ROUNDS


def format_round(rounds: np.ndarray, last: int) -> str:
    """Returns the median round over seeds, the lower of two middle ones; `>last` if it was not reached.

    >>> format_round(np.array([30, 40, 501, 501]), 500), format_round(np.array([30, 501, 501]), 500)
    ('40', '>500')
    """
    middle = float(np.quantile(rounds, 0.5, method="lower"))
    return f"{middle:.0f}" if middle <= last else f">{last}"


def find_published_result(experiment: str, method: str, metric: str) -> float | None:
    """Returns the published number for a measure, under FedCor's settings and as published."""
    data, _, rest = experiment.partition(", ")
    partition = rest.split(" ")[0]
    if experiment not in (name_experiment(data, partition), name_experiment(data, partition, AS_PUBLISHED)):
        return None
    return find_published(data, partition, method, COLUMNS[metric]) if metric in COLUMNS else None
