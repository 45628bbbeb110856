"""Ends a run that no longer improves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedjax_sel.catalog import check_name
from fedjax_sel.engine.history import History
from fedjax_sel.pytree import Range

__all__ = ["EarlyStopping"]

BETTER = {"accuracy": "max", "loss": "min", "training_loss": "min"}
"""The metrics of a model's quality, and whether more or less is better."""


@dataclass(frozen=True)
class EarlyStopping:
    """Ends the run after `patience` evaluations in a row without a new best value.

    The value is the mean over the seeds that have one. A run is checked between chunks, so it ends with the chunk in
    which patience ran out (`chunk=1`: with the round). The check depends on the history alone: a run that was stopped
    and resumed ends with the same round.

    Attributes:
      metric: `"accuracy"` or `"loss"` of the test examples, or `"training_loss"`.
      mode: whether more is better, `"max"`, or less, `"min"`; `"auto"`: as fits the metric.
      patience: evaluations without a new best.
      min_delta: a new best must be better by more than this.

    Raises:
      ValueError: the metric or mode is unknown, patience is below 1, or `min_delta` is negative.

    >>> values = np.array([[0.5, 0.7, 0.6, 0.7]])
    >>> history = History((0,), {"accuracy": values}, np.zeros((1, 4, 1), int), 5)
    >>> EarlyStopping(patience=2).after_central_iteration(history)  # two evaluations without a new best
    True
    """

    metric: Literal["accuracy", "loss", "training_loss"] = "accuracy"
    mode: Literal["auto", "max", "min"] = "auto"
    patience: int = 10
    min_delta: float = 0.0

    def __post_init__(self):
        check_name("metric of early_stopping:", self.metric, BETTER)
        check_name("mode of early_stopping:", self.mode, ("auto", "max", "min"))
        Range(1, whole=True).check("early_stopping: patience", self.patience)
        Range(0).check("early_stopping: min_delta", self.min_delta)

    def check_metrics(self, metrics: Collection[str]) -> None:
        """Raises `ValueError` if the metric is not among those that are measured."""
        if self.metric == "accuracy" and "accuracy" not in metrics:
            raise ValueError("early_stopping: metric is 'accuracy', which the task does not measure; use 'loss'")

    def after_central_iteration(self, history: History) -> bool:
        """Returns whether patience ran out, by the mean over the seeds that have not diverged."""
        sign = 1 if (BETTER[self.metric] if self.mode == "auto" else self.mode) == "max" else -1
        values = history[self.metric][history.diverged == 0]
        best, without = -np.inf, 0
        for value in sign * np.nanmean(values[:, ~np.isnan(values).all(0)], axis=0) if len(values) else ():
            better = value > best + self.min_delta
            best, without = (value, 0) if better else (best, without + 1)
            if without >= self.patience:
                return True
        return False
