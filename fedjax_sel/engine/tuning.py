"""Hyperparameters by Optuna: a batch of trials is asked for, run in one compiled program, and told."""

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
    """Returns the headline (accuracy) after the last round, mean over seeds that did not diverge; NaN where all did."""
    kept = history[history.headline][history.diverged == 0, -1]
    return float(kept.mean()) if kept.size else float("nan")


def check_direction(study: Any, experiment: Experiment) -> None:
    """Raises `ValueError` where a study goes the wrong way for the headline of an experiment."""
    name, better = ("accuracy", "maximize") if "accuracy" in experiment.task.metrics else ("loss", "minimize")
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
    """Returns the study, after so many more trials, `at_once` of them side by side in one compiled program.

    All trials of a batch are asked for before any is told, so that a batch is drawn from what earlier batches found.
    They differ only in floats; other choices belong to studies of their own. A trial whose value is NaN fails.

    Args:
      study: `optuna.create_study(direction="maximize")`, or any other of one objective.
      make: the experiment of a trial, from its `suggest_float`.
      data: as for `simulate`.
      trials: how many are run.
      at_once: of a batch; the last one may be smaller, and then compiles again.
      seeds, execution: of every trial, as for `simulate`.
      objective: a trial's value, from its history; by default the final accuracy, or the loss where targets are no
        classes.

    Raises:
      ValueError: optuna is not installed, there are no trials, the study goes the other way than the default
        objective, or what `sweep` refuses.

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
                check_direction(study, experiments[0])
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
