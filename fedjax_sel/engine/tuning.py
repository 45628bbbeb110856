"""Hyperparameter tuning with Optuna: a batch of trials is asked for, run in one compiled program, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedjax_sel.catalog import import_extra
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation
from fedjax_sel.engine.driver import sweep
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.pytree import is_whole


def mean_final_quality(history: History) -> float:
    """Returns the headline metric after the last round, averaged over seeds that did not diverge; NaN if all did."""
    kept = history[history.headline][history.diverged == 0, -1]
    return float(kept.mean()) if kept.size else float("nan")


def check_direction(study: Any, experiment: Experiment, data: Federation | FederatedData) -> None:
    """Raises `ValueError` if a study's direction is wrong for the headline metric of an experiment."""
    source = data.source if isinstance(data, Federation) else data
    targets = getattr(source, "targets", "classes")  # generators make classes
    accurate = targets == "classes" or "accuracy" in experiment.task.metrics
    name, better = ("accuracy", "maximize") if accurate else ("loss", "minimize")
    if study.direction.name.lower() != better:
        raise ValueError(
            f"the study is to {study.direction.name.lower()}, but its objective is the final {name}; give "
            f"create_study(direction={better!r}), or an objective of your own"
        )


def tune(
    study: Any,
    make: Callable[[Any], Experiment],
    data: Federation | FederatedData,
    trials: int,
    *,
    at_once: int = 8,
    seeds: int | Iterable[int] = 1,
    objective: Callable[[History], float] = mean_final_quality,
    execution: Execution | None = None,
) -> Any:
    """Runs more trials of a study, `at_once` of them side by side in one compiled program, and returns the study.

    All trials of a batch are asked for before any is told, so a batch is drawn from the results of earlier batches.
    They may differ only in floats; use separate studies for other choices. A trial whose value is not finite fails.

    Args:
      study: `optuna.create_study(direction="maximize")`, or any other study with one objective.
      make: makes a trial's experiment, with its `suggest_float`.
      data: as for `simulate`.
      trials: how many to run.
      at_once: trials per batch; the last batch may be smaller, and then compiles again.
      seeds, execution: for every trial, as for `simulate`.
      objective: returns a trial's value from its history; by default the final accuracy, or the loss if targets are not
        classes.

    Raises:
      ValueError: optuna is not installed, a count is invalid, the study's direction is wrong for the default
        objective, or `sweep` raises it.

    Example (extra `optuna`)::

        import optuna, fedjax_sel as fs

        def make(trial):
            rate = trial.suggest_float("learning_rate", 1e-3, 1.0, log=True)
            return fs.Experiment(task, local_training=fs.local_training.SGD(rate), rounds=50)

        study = fs.tune(optuna.create_study(direction="maximize"), make, federation, trials=32, seeds=3)
        print(study.best_params, study.best_value)
    """
    failed = import_extra("optuna.trial", "optuna", "tune").TrialState.FAIL
    for name, value in (("trials", trials), ("at_once", at_once)):
        if not is_whole(value) or value < 1:
            raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1")
    for first in range(0, trials, at_once):
        asked = [study.ask() for _ in range(min(at_once, trials - first))]
        try:
            experiments = [make(trial) for trial in asked]
            if objective is mean_final_quality:
                check_direction(study, experiments[0], data)
            histories = sweep(experiments, data, seeds, execution)
            values = [float(objective(history)) for history in histories]
        except BaseException:
            for trial in asked:
                study.tell(trial, state=failed)
            raise
        for trial, value in zip(asked, values, strict=True):
            if np.isfinite(value):
                study.tell(trial, value)
            else:
                study.tell(trial, state=failed)
    return study
