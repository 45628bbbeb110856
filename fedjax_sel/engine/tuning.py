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


def mean_final_accuracy(history: History) -> float:
    """Returns the accuracy after the last round, mean over the seeds that did not diverge; NaN where all did."""
    kept = history["accuracy"][history.diverged == 0, -1]
    return float(kept.mean()) if kept.size else float("nan")


def tune(
    study: Any,
    make: Callable[[Any], Experiment],
    data: Federation | FederatedData,
    trials: int,
    *,
    at_once: int = 8,
    seeds: int | Iterable[int] = 1,
    objective: Callable[[History], float] = mean_final_accuracy,
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
      objective: a trial's value, from its history.

    Raises:
      ValueError: optuna is not installed, there are no trials, or what `sweep` refuses.

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
            histories = sweep([make(trial) for trial in asked], data, seeds, execution)
        except BaseException:
            for trial in asked:
                study.tell(trial, state=failed)
            raise
        for trial, history in zip(asked, histories, strict=True):
            value = objective(history)
            if np.isfinite(value):
                study.tell(trial, float(value))
            else:
                study.tell(trial, state=failed)
    return study
