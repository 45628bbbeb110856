"""Hyperparameter tuning with Optuna: a batch of trials is asked for, run in one compiled program, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedjax_sel.catalog import import_extra
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.federation import Federation
from fedjax_sel.engine.driver import check_seeds, resolve_execution, sweep
from fedjax_sel.engine.execution import Execution
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.history import History
from fedjax_sel.pytree import is_whole, show, show_value


def mean_final_quality(history: History) -> float:
    """Returns the last measured value of the headline metric, averaged over seeds; NaN if a seed diverged."""
    return float("nan") if history.diverged.any() else float(history.last(history.headline).mean())


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


OBJECTIVE = (
    "it must be a function of a trial's history that returns one number, as lambda history: "
    "history['loss'][:, -1].mean()"
)
"""What the objective of a study must be."""


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
    They may differ only in floats, unless `at_once` is 1, where whole numbers and other choices may differ, too. A
    trial whose value is not finite fails, so by default one in which a seed diverges does. A sampler that has tried
    everything ends the study early.

    What is measured are the test examples. `load(..., test_from="training")` sets others apart instead, so that those
    on which the winner is to be judged have no part in the choice.

    Args:
      study: `optuna.create_study(direction="maximize")`, or any other study with one objective.
      make: makes a trial's experiment, with its `suggest_float`.
      data: as for `simulate`.
      trials: how many to run.
      at_once: trials per batch; the last batch may be smaller, and then compiles again.
      seeds, execution: for every trial, as for `simulate`.
      objective: returns a trial's value from its history; by default the mean over seeds of the last accuracy, or loss
        if targets are not classes.

    Raises:
      ValueError: optuna is not installed, a count is invalid, `study` is not a study, or has several objectives or the
        wrong direction for the default objective, `objective` is not a function or does not return a number,
        checkpoints are given, or `sweep` raises it.

    Example (extra `optuna`)::

        import optuna, fedjax_sel as fs

        def make(trial):
            rate = trial.suggest_float("learning_rate", 1e-3, 1.0, log=True)
            return fs.Experiment(task, local_training=fs.local_training.SGD(rate), rounds=50)

        study = fs.tune(optuna.create_study(direction="maximize"), make, federation, trials=32, seeds=3)
        print(study.best_params, study.best_value)
    """
    import_extra("optuna.trial", "optuna", "tune")
    for name, value in (("trials", trials), ("at_once", at_once)):
        if not is_whole(value) or value < 1:
            raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1")
    if not hasattr(study, "directions"):
        raise ValueError(f"study is {show(study)}; it must be a study of optuna, as optuna.create_study(direction=...)")
    if not callable(objective):
        raise ValueError(f"objective is {show(objective)}; {OBJECTIVE}")
    if len(study.directions) > 1:
        raise ValueError(f"the study has {len(study.directions)} objectives; tune runs studies with one")
    how, seeds = resolve_execution(execution, {}), check_seeds(seeds)
    if how.checkpoints is not None:
        raise ValueError("tune takes no checkpoints, as every batch is another run; the study keeps what is done")

    def judge(history: History) -> float:
        found = objective(history)
        try:
            if found is None:  # NumPy's NaN
                raise TypeError("None is no number")
            return float(np.asarray(found, np.float64).item())
        except (TypeError, ValueError) as error:
            raise ValueError(f"objective returned {show_value(found)}; {OBJECTIVE}") from error

    for first in range(0, trials, at_once):
        asked = [study.ask() for _ in range(min(at_once, trials - first))]
        try:
            experiments = [make_or_prune(make, trial) for trial in asked]
            there = [one for one in experiments if one is not PRUNED]
            if there and objective is mean_final_quality:
                check_direction(study, there[0], data)
            histories = iter(sweep(there, data, seeds, how) if there else ())
            values = [one if one is PRUNED else make_or_prune(judge, next(histories)) for one in experiments]
        except BaseException as error:
            for trial in asked:
                tell_trial(study, trial, float("nan"))
            if at_once > 1 and "one after the other" in str(error):
                error.add_note("fs.tune(..., at_once=1) runs the trials one after the other")
            raise
        exhausted = [tell_trial(study, trial, value) for trial, value in zip(asked, values, strict=True)]
        if any(exhausted):
            break
    return study


PRUNED = object()
"""Stands for what the user's code pruned by `optuna.TrialPruned`."""


def make_or_prune(make: Callable[[Any], Any], given: Any) -> Any:
    """Returns what the user's code makes, or `PRUNED`."""
    try:
        return make(given)
    except import_extra("optuna.exceptions", "optuna", "tune").TrialPruned:
        return PRUNED


def tell_trial(study: Any, trial: Any, value: Any) -> bool:
    """Tells a study what a trial is worth, if it is worth something; returns whether its sampler then is at its end."""
    states = import_extra("optuna.trial", "optuna", "tune").TrialState
    try:
        if value is PRUNED:
            study.tell(trial, state=states.PRUNED)
        elif np.isfinite(value):
            study.tell(trial, value)
        else:
            study.tell(trial, state=states.FAIL)
    except RuntimeError as error:  # from `Study.stop`, which wants Optuna's own loop; the trial is recorded
        if "Study.stop" not in str(error):
            raise
        return True
    return False
