"""The numbers of the GPFL report: measures of a cell, and the source's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import coverage, fill_missing, jain, last_mean, rounds_to
from fedjax_sel.papers._gpfl_cells import (
    AS_PUBLISHED,
    CIFAR,
    DIGITS,
    FASHION,
    FEDCOR,
    GPFL,
    LAST,
    PARTITIONS,
    POW_D,
    RANDOM,
    titled,
)
from fedjax_sel.papers._paper import Evidence, Histories, Result

SHARES = {"15 %": 0.15, "50 %": 0.5}
"""Of the rounds, at which Table II looks."""

TABLE_2: dict[str, dict[str, tuple[float, ...]]] = {
    FASHION: {
        RANDOM: (0.4895, 0.5378, 0.4859, 0.4331, 0.5367, 0.5575, 0.5020, 0.6001, 0.5451, 0.08, 0.11, 0.08),
        POW_D: (0.4826, 0.5824, 0.5802, 0.4865, 0.6327, 0.4903, 0.4801, 0.5859, 0.5831, 0.15, 0.08, 0.16),
        FEDCOR: (0.6646, 0.6971, 0.5635, 0.6717, 0.6907, 0.6814, 0.5714, 0.6846, 0.6359, 0.12, 0.04, 0.09),
        GPFL: (0.6789, 0.6879, 0.6268, 0.6956, 0.7741, 0.7411, 0.7703, 0.7780, 0.7370, 0.04, 0.04, 0.05),
    },
    CIFAR: {
        RANDOM: (0.1347, 0.3493, 0.2849, 0.2219, 0.3008, 0.3655, 0.2667, 0.5257, 0.5179, 0.08, 0.06, 0.05),
        POW_D: (0.1515, 0.2867, 0.3089, 0.2885, 0.3890, 0.3419, 0.3110, 0.5613, 0.4989, 0.08, 0.18, 0.18),
        FEDCOR: (0.1526, 0.2455, 0.2455, 0.2047, 0.4081, 0.4081, 0.2719, 0.4759, 0.4821, 0.10, 0.10, 0.10),
        GPFL: (0.1000, 0.3659, 0.2941, 0.2352, 0.5202, 0.4183, 0.2822, 0.5755, 0.5346, 0.10, 0.05, 0.06),
    },
}
"""Table II: 1SPC, 2SPC, Dir at 15 %, at 50 %, over the last 10 rounds, and their largest deviation."""


def published(data: str, partition: str, method: str, what: str) -> float | None:
    """A number of Table II; None where it has none.

    Args:
      data, partition, method: of the cell.
      what: `"15 %"`, `"50 %"`, `"last"` or `"deviation"`.
    """
    row = TABLE_2.get(data, {}).get(method)
    if row is None:
        return None
    return row[3 * ["15 %", "50 %", "last", "deviation"].index(what) + list(PARTITIONS).index(partition)]


def fairly_run(histories: Histories) -> Iterator[tuple[str, str, str]]:
    """(data, partition, experiment) of every experiment under FedCor's settings that was run."""
    experiments = {experiment for experiment, _ in histories}
    for data in (FASHION, DIGITS, CIFAR):
        for partition in PARTITIONS:
            if titled(data, partition) in experiments:
                yield data, partition, titled(data, partition)


def main_data(histories: Histories) -> str:
    """Fashion-MNIST, or the digits that stand for it at `smoke`."""
    return FASHION if (titled(FASHION, "2SPC"), RANDOM) in histories else DIGITS


def partitions_run(histories: Histories) -> list[str]:
    """The partitions on which `main_data` was run."""
    return [p for p in PARTITIONS if (titled(main_data(histories), p), RANDOM) in histories]


def at_share(history: History, share: float) -> np.ndarray:
    """Accuracy of each seed when this share of the rounds is done."""
    return fill_missing(history["accuracy"])[:, max(1, round(share * history.rounds)) - 1]


def last_deviation(history: History) -> np.ndarray:
    """Largest distance of one of the last 10 accuracies from their mean."""
    last = history["accuracy"][:, -LAST:]
    return np.abs(last - last.mean(1, keepdims=True)).max(1)


def coverage_round(history: History) -> np.ndarray:
    """First round (from 1) after which every client was selected; one more than there are where none is."""
    done = coverage(history.selections, history.num_clients) >= 1
    return np.where(done.any(1), done.argmax(1) + 1, history.rounds + 1)


def measures(history: History) -> dict[str, np.ndarray]:
    """Numbers a seed of one cell."""
    accuracy, counts = history["accuracy"], history.counts()
    return {
        **{f"accuracy_at_{name.replace(' %', '')}": at_share(history, share) for name, share in SHARES.items()},
        "accuracy_last": last_mean(accuracy, LAST),
        "deviation_last": last_deviation(history),
        "best_accuracy": np.nanmax(accuracy, axis=1),
        "rounds_to_0.6": rounds_to(accuracy, 0.6),
        "coverage_round": coverage_round(history),
        "most_selected": counts.max(1),
        "jain": jain(counts),
        "bytes": history.cumulative("bytes")[:, -1],
        "flops": history.cumulative("flops")[:, -1],
    }


def results(scale: str, evidence: Evidence) -> list[Result]:
    """Every measure of every cell, beside what is published."""
    names = {"accuracy_at_15": "15 %", "accuracy_at_50": "50 %", "accuracy_last": "last", "deviation_last": "deviation"}
    out = []
    for (experiment, method), history in evidence.histories.items():
        data, _, rest = experiment.partition(", ")
        partition = rest.split(" ")[0]
        theirs = experiment in (titled(data, partition), titled(data, partition, AS_PUBLISHED))
        for metric, value in measures(history).items():
            of_paper = published(data, partition, method, names[metric]) if metric in names and theirs else None
            out.append(Result(experiment, method, metric, None, tuple(map(float, value)), of_paper))
    return out
