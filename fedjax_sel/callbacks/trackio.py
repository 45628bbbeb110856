"""Curves in Trackio."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedjax_sel.callbacks._ops import begins_anew, locate, name_run, refuse_sweep, values
from fedjax_sel.catalog import check_installed, import_extra
from fedjax_sel.engine.history import History
from fedjax_sel.runs.files import read_json, write_json

__all__ = ["Trackio"]

FILE = "trackio.json"


@dataclass
class Trackio:
    """Logs every metric by round (from 1), and the configuration: one Trackio run per seed, in one group.

    Trackio keeps them in its own folder on this machine (`TRACKIO_DIR`), or sends them to a Hugging Face Space;
    `trackio show` shows them. `trackio.json` in the run's folder records how many rounds were logged, and `trackio.id`
    the end of the runs' names, so a resumed run continues the same Trackio runs with the missing rounds.

    Attributes:
      project: where the runs are listed.
      group: of the seeds; None: the name of the run's folder.
      space_id: a Hugging Face Space; None: this machine.
      folder: of the run, in which a run that resumes finds what it wrote; None: the working directory, where each run
        that begins gets new Trackio runs.
      config: what the run was built from.

    Raises:
      ValueError: trackio is not installed.
    """

    project: str = "fedjax-sel"
    group: str | None = None
    space_id: str | None = None
    folder: str | Path | None = None
    config: dict = field(default_factory=dict)
    _runs: list[Any] = field(default_factory=list, init=False, repr=False)
    _written: int = field(default=0, init=False, repr=False)

    def __post_init__(self):
        check_installed("trackio", "trackio", "callbacks.trackio")

    def on_train_begin(self, history: History) -> None:
        """Starts or continues one run per seed."""
        refuse_sweep("trackio", history)
        trackio = import_extra("trackio", "trackio", "callbacks.trackio")
        name, file = locate(self.folder).absolute().name, locate(self.folder) / FILE
        end = name_run(self.folder, "trackio.id", history)
        knows = file.exists() and not begins_anew(self.folder, history)
        self._written = read_json(file)["rounds"] if knows else 0
        self._runs = [
            trackio.init(
                project=self.project,
                name=f"{name}-{self.config.get('client_selection', {}).get('name', 'run')}-seed-{seed}-{end}",
                group=self.group or name,
                space_id=self.space_id,
                config={**self.config, "seed": seed},
                resume="allow",
                embed=False,
            )
            for seed in history.seeds
        ]
        if history.rounds:
            self.after_central_iteration(history)

    def after_central_iteration(self, history: History) -> None:
        """Logs the new rounds."""
        for i, run in enumerate(self._runs):
            for number, found in values(history, i, self._written):
                run.log({"round": number, **found}, step=number)
        self._written = max(self._written, history.rounds)
        write_json(locate(self.folder) / FILE, {"rounds": self._written})

    def on_train_end(self, history: History) -> None:
        """Finishes the runs."""
        for run in self._runs:
            run.finish()
        self._runs = []
