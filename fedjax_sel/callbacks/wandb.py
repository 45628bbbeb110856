"""Curves in Weights & Biases."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedjax_sel.callbacks._ops import locate, name_run, refuse_sweep, values
from fedjax_sel.catalog import check_installed, check_name
from fedjax_sel.engine.history import History

__all__ = ["WandB"]

MODES = ("online", "offline", "disabled")


@dataclass
class WandB:
    """Logs every metric by round (from 1), and the configuration: one W&B run per seed, in one group.

    Files are in `wandb/` in the run's folder. The default needs no account; files stay until `wandb sync` sends them.
    The runs' identifier is kept in `wandb/id`, so a resumed run continues the same W&B runs: offline it rewrites them
    from their first round, online it adds the missing rounds.

    Attributes:
      project: where the runs are listed.
      group: of the seeds; None: the name of the run's folder.
      mode: `"online"` sends every chunk (after `wandb login`), `"offline"` keeps files, `"disabled"` does nothing.
      folder: of the run, which contains `wandb/`; None: the working directory, where each run that begins gets new W&B
        runs.
      config: what the run was built from.

    Raises:
      ValueError: wandb is not installed, or the mode is unknown; when the run begins, any error that W&B raises.

    >>> WandB(project="selectors", mode="disabled").group is None
    True
    """

    project: str = "fedjax-sel"
    group: str | None = None
    mode: Literal["online", "offline", "disabled"] = "offline"
    folder: str | Path | None = None
    config: dict = field(default_factory=dict)
    _runs: list[Any] = field(default_factory=list, init=False, repr=False)
    _written: list[int] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self):
        check_installed("wandb", "wandb", "callbacks.wandb")
        check_name("mode of wandb:", self.mode, MODES)

    def on_train_begin(self, history: History) -> None:
        """Starts or continues one run per seed."""
        if self.mode == "disabled":
            return
        refuse_sweep("wandb", history)
        import wandb

        self._runs, self._written = [], []  # those of a run that was interrupted are still there
        place, name = locate(self.folder).absolute(), name_run(self.folder, "wandb/id", history)
        for seed in history.seeds:
            for before in (place / "wandb").glob(f"offline-run-*-{name}-{seed}"):
                shutil.rmtree(before, ignore_errors=True)  # the W&B process of a killed run may still be running
            try:
                run = wandb.init(
                    project=self.project,
                    group=self.group or place.name,
                    name=f"{place.name} seed {seed}",
                    id=f"{name}-{seed}",
                    dir=str(place),
                    config={**self.config, "seed": seed},
                    mode=self.mode,
                    resume="allow" if self.mode == "online" else None,
                    reinit="create_new",
                    settings=wandb.Settings(
                        console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True
                    ),
                )
            except wandb.Error as error:
                raise ValueError(f"callbacks.wandb: {(str(error).splitlines() or [repr(error)])[0]}") from error
            run.define_metric("*", step_metric="round")
            self._runs.append(run)
            self._written.append(max(0, run.starting_step - 1))
        if history.rounds:
            self.after_central_iteration(history)

    def after_central_iteration(self, history: History) -> None:
        """Logs the new rounds."""
        for i, run in enumerate(self._runs):
            for number, found in values(history, i, self._written[i]):
                run.log({"round": number, **found}, step=number)
            self._written[i] = max(self._written[i], history.rounds)

    def on_train_end(self, history: History) -> None:
        """Finishes the runs."""
        for run in self._runs:
            run.finish()
        self._runs, self._written = [], []
