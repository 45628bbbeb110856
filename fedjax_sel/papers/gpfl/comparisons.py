"""What the GPFL report's claims share: one number of one cell, experiments by name, margins."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedjax_sel.papers.gpfl.cells import FEDCOR, POW_D, RANDOM, name_experiment
from fedjax_sel.papers.gpfl.numbers import find_data, list_partitions, measure
from fedjax_sel.papers.paper import Histories

NOTICED = 0.005
"""A smaller advantage in accuracy would be noticed by nobody."""

BASELINES = (RANDOM, POW_D, FEDCOR)
"""The methods that the source compares GPFL with."""


def measure_cell(histories: Histories, partition: str, settings: str, method: str, metric: str) -> np.ndarray:
    """Returns one number a seed, on Fashion-MNIST (digits at `smoke`)."""
    return measure(histories[name_experiment(find_data(histories), partition, settings), method])[metric]


def list_settings(histories: Histories, *settings: str, partitions: Iterable[str] | None = None) -> list[str]:
    """Returns the experiments under these settings, on Fashion-MNIST (digits at `smoke`)."""
    partitions = list_partitions(histories) if partitions is None else partitions
    return [name_experiment(find_data(histories), partition, name) for name in settings for partition in partitions]
