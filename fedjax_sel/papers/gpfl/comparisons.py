"""What the claims of the GPFL report share: one number of one cell, experiments by name, margins."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedjax_sel.papers.gpfl.cells import FEDCOR, POW_D, RANDOM, name_experiment
from fedjax_sel.papers.gpfl.numbers import find_data, list_partitions, measure
from fedjax_sel.papers.paper import Histories

NOTICED = 0.005
"""An advantage in accuracy of at most this is negligible."""

BASELINES = (RANDOM, POW_D, FEDCOR)
"""The methods that the source compares GPFL with."""


def measure_cell(histories: Histories, partition: str, settings: str, method: str, metric: str) -> np.ndarray:
    """Returns one number per seed, on Fashion-MNIST (digits at `smoke`)."""
    return measure(histories[name_experiment(find_data(histories), partition, settings), method])[metric]


def list_settings(histories: Histories, *settings: str, partitions: Iterable[str] | None = None) -> list[str]:
    """Returns the experiments under these settings, on Fashion-MNIST (digits at `smoke`)."""
    partitions = list_partitions(histories) if partitions is None else partitions
    return [name_experiment(find_data(histories), partition, name) for name in settings for partition in partitions]
