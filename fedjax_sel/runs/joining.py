"""Joins finished runs that differ only in their seeds, such as those of the jobs of a batch, into one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedjax_sel.catalog import see
from fedjax_sel.config import Config
from fedjax_sel.engine.history import History, join_seeds
from fedjax_sel.runs import layout
from fedjax_sel.runs.layout import FolderError
from fedjax_sel.runs.saved import SavedRun, open_run

FREE = ("seeds", "layout", "mesh", "examples_on", "chunk")
"""Keys in which the runs may differ: which seeds, and where and in what order they are computed."""


@see("docs/how-to/saved-runs.md")
def join(folders: Sequence[str | Path], out: str | Path, *, say: Callable[[str], None] = print) -> History:
    """Returns the history of one run with the seeds of several finished ones, and saves it in a folder of its own.

    `config.yaml` has all seeds, so it reruns the whole. Where the runs differ in how they were computed (`layout`,
    `mesh`, `examples_on`, `chunk`), it has the values of the run whose first seed is the lowest. Final models are
    written if all folders keep them. A callback that ends runs, such as `early_stopping`, has judged the seeds of each
    run separately.

    Args:
      folders: of finished runs whose configurations differ only in their seeds; no seed is in two of them.
      out: a new folder.
      say: called with a line if there are no models to write.

    Raises:
      FileNotFoundError: there is no such folder.
      FolderError: a folder holds something else, is not finished, or has another configuration; `out` is not new.
      ValueError: no folder, or a seed that is in two of them.
    """
    if isinstance(folders, str | Path):
        raise ValueError(f"folders is {str(folders)!r}; it must be a list of folders")
    places = {Path(folder).expanduser().resolve(): None for folder in folders}  # each once
    runs = sorted(map(open_run, places), key=lambda run: run.seeds[0])
    check_configurations(runs)
    out = Path(out).expanduser()
    if (now := layout.state(out)) != "new":
        raise FolderError(
            f"{out} holds {'a finished' if now == 'finished' else 'an interrupted'} run; give a new folder"
        )
    histories = [run.history for run in runs]
    try:
        histories = [replace(run.history, variables=run.variables) for run in runs]
    except FolderError as error:
        say(f"The models are left out: {error}")
    history = join_seeds(histories, [str(run.folder) for run in runs])
    ran = [one for run in runs for one in layout.read_environments(run.folder)]
    config = Config(runs[0].asked).with_seeds(history.seeds)
    layout.save(out, history, config, models=history.variables is not None, environments=ran)
    return history


def check_configurations(runs: Sequence[SavedRun]) -> None:
    """Raises `FolderError` if the configurations of runs differ in more than `FREE`."""
    configs = [Config(run.asked) for run in runs]
    if any(set(config) != set(configs[0]) for config in configs):  # some are of an earlier version
        configs = [layout.complete_written(config) for config in configs]
    for run, config in zip(runs[1:], configs[1:], strict=True):
        if keys := [key for key in config.differences(configs[0]) if key.partition(".")[0] not in FREE]:
            shown = layout.show_differences(config, configs[0], keys)
            raise FolderError(f"{run.folder} differs from {runs[0].folder} in more than its seeds ({shown})")
