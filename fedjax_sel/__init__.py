"""Federated learning simulated in one XLA program: who should train, and on what."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedjax_sel import (
        aggregation,
        client_selection,
        correction,
        data,
        data_selection,
        local_training,
        models,
        signals,
    )
    from fedjax_sel.data import partition
    from fedjax_sel.data.dataset import Dataset, dataset
    from fedjax_sel.data.federated import FederatedData
    from fedjax_sel.data.federation import Federation
    from fedjax_sel.data.sources import load
    from fedjax_sel.engine.driver import simulate, sweep
    from fedjax_sel.engine.experiment import Experiment
    from fedjax_sel.engine.history import History, join_seeds
    from fedjax_sel.engine.layout import Layout
    from fedjax_sel.engine.tuning import tune
    from fedjax_sel.protocols import (
        Aggregator,
        Availability,
        ClientSelector,
        ClientSignal,
        CohortSignal,
        Correction,
        Cost,
        DataSelector,
        ExampleSignal,
        FeatureSignal,
        GradientSignal,
        LocalTrainer,
        Prepared,
        ServerSignal,
        Signals,
        Strategy,
        UpdateSignal,
        UpfrontSignal,
    )
    from fedjax_sel.pytree import param, static
    from fedjax_sel.runs.formats import load_variables, save_variables
    from fedjax_sel.runs.joining import join
    from fedjax_sel.runs.saved import open
    from fedjax_sel.task import Task
    from fedjax_sel.types import Cohort

try:
    __version__ = version("fedjax-sel")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = [
    "Aggregator",
    "Availability",
    "ClientSelector",
    "ClientSignal",
    "Cohort",
    "CohortSignal",
    "Correction",
    "Cost",
    "DataSelector",
    "Dataset",
    "ExampleSignal",
    "Experiment",
    "FeatureSignal",
    "FederatedData",
    "Federation",
    "GradientSignal",
    "History",
    "Layout",
    "LocalTrainer",
    "Prepared",
    "ServerSignal",
    "Signals",
    "Strategy",
    "Task",
    "UpdateSignal",
    "UpfrontSignal",
    "aggregation",
    "client_selection",
    "correction",
    "data",
    "data_selection",
    "dataset",
    "join",
    "join_seeds",
    "load",
    "load_variables",
    "local_training",
    "models",
    "open",
    "param",
    "partition",
    "save_variables",
    "signals",
    "simulate",
    "static",
    "sweep",
    "tune",
]

_HOME = {
    "Aggregator": "protocols",
    "Availability": "protocols",
    "ClientSelector": "protocols",
    "ClientSignal": "protocols",
    "Cohort": "types",
    "CohortSignal": "protocols",
    "Correction": "protocols",
    "Cost": "protocols",
    "DataSelector": "protocols",
    "Dataset": "data.dataset",
    "ExampleSignal": "protocols",
    "Experiment": "engine.experiment",
    "FeatureSignal": "protocols",
    "FederatedData": "data.federated",
    "Federation": "data.federation",
    "GradientSignal": "protocols",
    "History": "engine.history",
    "Layout": "engine.layout",
    "LocalTrainer": "protocols",
    "Prepared": "protocols",
    "ServerSignal": "protocols",
    "Signals": "protocols",
    "Strategy": "protocols",
    "Task": "task",
    "UpdateSignal": "protocols",
    "UpfrontSignal": "protocols",
    "dataset": "data.dataset",
    "join": "runs.joining",
    "join_seeds": "engine.history",
    "load": "data.sources",
    "load_variables": "runs.formats",
    "open": "runs.saved",
    "param": "pytree",
    "save_variables": "runs.formats",
    "simulate": "engine.driver",
    "static": "pytree",
    "sweep": "engine.driver",
    "tune": "engine.tuning",
}


def __getattr__(name: str) -> Any:
    """Imports a name on first use, so that the command line prints its help without loading JAX."""
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name == "partition":
        return importlib.import_module(f"{__name__}.data.partition")
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    hint = "" if name.startswith("__") else importlib.import_module(f"{__name__}.catalog").suggest(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
