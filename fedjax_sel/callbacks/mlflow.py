"""Curves in MLflow."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedjax_sel.callbacks._ops import locate, name_run, refuse_sweep, values
from fedjax_sel.catalog import check_installed, import_extra
from fedjax_sel.config.config import flat
from fedjax_sel.engine.history import History

__all__ = ["MLflow"]

AT_ONCE = 1000
"""Most metrics that MLflow accepts in one call."""

LONGEST = 500
"""Most characters of a parameter that MLflow accepts."""


@dataclass
class MLflow:
    """Logs every metric by round (from 1), and the configuration: one MLflow run per seed.

    By default, everything is stored in `mlflow.db` in the run's folder;
    `mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db` shows it. `mlflow.id` in the run's folder says which MLflow
    runs these are, so a resumed run continues the same ones and adds the missing rounds.

    Attributes:
      experiment: the name under which the runs are listed.
      uri: of a tracking server or a database; None: `mlflow.db` in the run's folder.
      folder: of the run, in which a run that resumes finds what it wrote; None: the working directory, where each run
        that begins gets new MLflow runs.
      config: what the run was built from.

    Raises:
      ValueError: mlflow is not installed; when the run begins, any error that MLflow raises.
    """

    experiment: str = "fedjax-sel"
    uri: str | None = None
    folder: str | Path | None = None
    config: dict = field(default_factory=dict)
    _client: Any = field(default=None, init=False, repr=False)
    _runs: list[str] = field(default_factory=list, init=False, repr=False)
    _written: list[int] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self):
        check_installed("mlflow", "mlflow", "callbacks.mlflow")

    def on_train_begin(self, history: History) -> None:
        """Starts or continues one run per seed."""
        refuse_sweep("mlflow", history)
        mlflow = import_extra("mlflow", "mlflow", "callbacks.mlflow")
        place = locate(self.folder).absolute()
        try:
            self._client = mlflow.MlflowClient(tracking_uri=self.uri or f"sqlite:///{place / 'mlflow.db'}")
            found = self._client.get_experiment_by_name(self.experiment)
            number = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
            self._runs = self._find_runs(number, place.name, history)
        except mlflow.MlflowException as error:
            raise ValueError(f"callbacks.mlflow: {(str(error).splitlines() or [repr(error)])[0]}") from error
        last = [self._client.get_run(run).data.metrics.get("round", 0) for run in self._runs]
        self._written = [int(number) for number in last]
        if history.rounds:
            self.after_central_iteration(history)

    def after_central_iteration(self, history: History) -> None:
        """Logs the new rounds."""
        entities = import_extra("mlflow.entities", "mlflow", "callbacks.mlflow")
        now = int(1000 * time.time())
        for i, run in enumerate(self._runs):
            found = values(history, i, self._written[i])
            logged = [
                entities.Metric(name, value, now, number)
                for number, one in found
                for name, value in {**one, "round": float(number)}.items()
            ]
            for first in range(0, len(logged), AT_ONCE):
                self._client.log_batch(run, metrics=logged[first : first + AT_ONCE])
            self._written[i] = max(self._written[i], history.rounds)

    def on_train_end(self, history: History) -> None:
        """Marks the runs as finished."""
        for run in self._runs:
            self._client.set_terminated(run)
        self._runs, self._written = [], []

    def _find_runs(self, experiment: str, name: str, history: History) -> list[str]:
        """Returns the identifiers of the MLflow runs of all seeds, which are created if missing."""
        own = name_run(self.folder, "mlflow.id", history)
        runs = [self._find_run(experiment, f"{name} seed {seed}", f"{own}#{seed}", seed) for seed in history.seeds]
        for run in runs:  # a tag, as a parameter cannot change when a run is given more rounds
            self._client.set_tag(run, "rounds", str(self.config.get("rounds", "")))
        return runs

    def _find_run(self, experiment: str, name: str, label: str, seed: int) -> str:
        """Returns the identifier of the MLflow run with a label, which is created if missing."""
        known = self._client.search_runs([experiment], f"tags.`fedjax_sel.run` = '{label}'")
        if known:
            return known[0].info.run_id
        made = self._client.create_run(experiment, run_name=name, tags={"fedjax_sel.run": label}).info.run_id
        entities = import_extra("mlflow.entities", "mlflow", "callbacks.mlflow")
        given = {**flat(self.config), "seed": seed}
        given.pop("rounds", None)
        self._client.log_batch(made, params=[entities.Param(k, str(v)[:LONGEST]) for k, v in given.items()])
        return made
