"""The settings of Flower's `niid_bench`, as configurations of this library, and the order in which they are run.

Source: https://github.com/adap/flower, baselines/niid_bench: its README (the table is in `published.csv`), `conf/`,
`models.py`, `dataset.py`, the clients, the servers and the strategies.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedjax_sel.config import Config, resolve

PUBLISHED = Path(__file__).parent / "published.csv"

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
PARTITIONS = {"iid": "IID", "dirichlet": "Dirichlet (0.5)", "labels": "two labels"}
METHODS = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "fedprox": "FedProx", "fednova": "FedNova"}
MUS = (0.01, 0.001, 0.1, 1.0)
"""The values of FedProx's `μ`, of which the table takes the best; the default of `niid_bench` is first."""

ROUNDS, SEEDS, MOST_SEEDS = 50, (0, 1, 2), 20
DRAW = "benchmarks.external.partition:PublicDraw"


@dataclass(frozen=True)
class Cell:
    """A setting of the table.

    Attributes:
      data, partition, method: keys of `DATA`, `PARTITIONS` and `METHODS`.
      mu: FedProx's `μ`; None for the other methods.

    >>> Cell("mnist", "iid", "fedprox", 0.01).name
    'mnist-iid-fedprox-0.01'
    """

    data: str
    partition: str
    method: str
    mu: float | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        return "-".join([self.data, self.partition, self.method, *([] if self.mu is None else [f"{self.mu:g}"])])


@dataclass(frozen=True)
class Published:
    """A number of the table, in per cent.

    Attributes:
      mean, std: mean and deviation (with `n - 1`) over `PUBLISHED_SEEDS` runs.
    """

    mean: float
    std: float


PUBLISHED_SEEDS = 3
"""The table's deviations are with `n - 1`: accuracies of 10, 10 and 81.4 give 33.80 ± 41.22."""


def read_published() -> dict[tuple[str, str, str], Published]:
    """Returns the table, by data, partition and method."""
    with PUBLISHED.open(encoding="utf-8") as lines:
        return {
            (row["data"], row["partition"], row["method"]): Published(float(row["mean"]), float(row["std"]))
            for row in csv.DictReader(lines)
        }


def configure(cell: Cell, seed: int, rounds: int = ROUNDS, **data: Any) -> Config:
    """Returns the configuration of a cell with one seed.

    Args:
      cell: the cell of the table.
      seed: seed of the initial model and batches; the partition is the same for all seeds.
      rounds: number of rounds; fewer for a trial.
      data: parameters of the data, such as a smaller number of examples for a trial.
    """
    training = {"name": "sgd", "learning_rate": 0.01, "batch_size": 64, "epochs": 10, "momentum": 0.9}
    training |= {"weight_decay": 1e-5}
    if cell.data == "cifar10":
        training["augment"] = {"name": "crop_flip", "padding": 4, "border": "reflect"}
    return resolve(
        {
            "data": {"name": f"tfds:{cell.data}", **data},
            "partition": {"name": DRAW, "law": cell.partition, "clients": 10, "alpha": 0.5, "labels": 2, "seed": 42},
            "data_seed": 42,
            "model": {
                "name": "cnn",
                "channels": [6, 16],
                "hidden": [120, 84],
                "kernel": 5,
                "pooled": 2,
                "initial": "torch",
                "normalise": "unit",
            },
            "client_selection": "uniform",
            "cohort_size": 10,
            "local_training": training,
            "correction": correct(cell),
            "aggregation": "fednova" if cell.method == "fednova" else {"name": "mean", "weighting": "size"},
            "rounds": rounds,
            "evaluate_every": 1,
            "seeds": [seed],
        }
    )


def correct(cell: Cell) -> Any:
    """Returns the correction of a cell's local steps."""
    if cell.method == "scaffold":
        return {"name": "scaffold", "applied": "after_momentum", "weighting": "size"}
    return {"name": "proximal", "mu": cell.mu} if cell.method == "fedprox" else "none"


STAGES: dict[str, Sequence[Cell]] = {
    "fedavg": [Cell(data, law, "fedavg") for data in ("fashion_mnist", "mnist") for law in PARTITIONS],
    "others": [
        Cell(data, law, method, MUS[0] if method == "fedprox" else None)
        for data in ("fashion_mnist", "mnist")
        for law in ("dirichlet", "labels", "iid")
        for method in ("scaffold", "fednova", "fedprox")
    ],
    "cifar10-dirichlet": [
        Cell("cifar10", "dirichlet", method, MUS[0] if method == "fedprox" else None) for method in METHODS
    ],
    "mu": [
        Cell(data, law, "fedprox", mu)
        for data in ("fashion_mnist", "mnist")
        for law in ("dirichlet", "labels", "iid")
        for mu in MUS[1:]
    ],
    "cifar10": [
        *(
            Cell("cifar10", law, method, MUS[0] if method == "fedprox" else None)
            for law in ("iid", "labels")
            for method in METHODS
        ),
        *(Cell("cifar10", law, "fedprox", mu) for law in ("dirichlet", "iid", "labels") for mu in MUS[1:]),
    ],
}
"""The stages, which run one after another so that verdicts come early."""


def order_runs(stages: Sequence[str] = tuple(STAGES), seeds: Sequence[int] = SEEDS) -> Iterator[tuple[Cell, int]]:
    """Yields cells with seeds: for each stage, the first seed of all its cells, then the second, and so on."""
    for stage in stages:
        for seed in seeds:
            for cell in STAGES[stage]:
                yield cell, seed
