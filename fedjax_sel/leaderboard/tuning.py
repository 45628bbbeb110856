"""Tunes every selector over the same number of configurations, on seeds and examples that no comparison uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console

from fedjax_sel.engine.driver import sweep
from fedjax_sel.leaderboard.cells import Cell, Workbench, configure, locate, run_cell, tell_failure
from fedjax_sel.leaderboard.federations import Entry
from fedjax_sel.leaderboard.selectors import Competitor
from fedjax_sel.metrics import mean_over_rounds
from fedjax_sel.papers.measures import settle
from fedjax_sel.runs.files import read_json, write_json

SEEDS = (1000, 1001, 1002)
"""The seeds of tuning; the comparison uses other ones."""

WITH_OWN = (1 / 3, 1.0, 3.0)
"""Factors on the learning rate of a selector that also tries two values of its own parameter."""

WITHOUT = (1 / 3, 1 / 2, 2 / 3, 1.0, 2.0, 3.0)
"""Factors on the learning rate of a selector none of whose parameters is tuned, in the range of `WITH_OWN`."""

TRIALS = len(WITHOUT)
"""The number of configurations tried for every selector, whatever its parameters."""

TUNED = " (tuned)"
"""The suffix of the name of a tuned selector."""


def list_trials(selector: Competitor) -> list[Competitor]:
    """Returns the configurations to try for a selector; all selectors have the same number.

    >>> len(list_trials(Competitor("uniform"))), len(list_trials(Competitor("e3cs", grid={"fairness": (0.5, 0.8)})))
    (6, 6)
    """
    label = selector.label + TUNED
    if not selector.grid:
        return [replace(selector, rate=rate, alias=label) for rate in WITHOUT]
    ((name, values),) = selector.grid.items()
    return [
        replace(selector, rate=rate, alias=label, settings={**selector.settings, name: value})
        for rate, value in product(WITH_OWN, values)
    ]


def tune(
    federation: Entry, selector: Competitor, trial: Workbench, bench: Workbench, out: Path, console: Console
) -> Cell:
    """Returns the cell of the configuration with the largest area under the curve of validation accuracy.

    The seeds of tuning are not those of the comparison.

    Args:
      federation, selector: those of the cell.
      trial: a workbench with the seeds of tuning, which measures accuracy on the validation examples.
      bench: a workbench with the seeds of the comparison.
      out: the folder of the leaderboard.
      console: where progress is shown.
    """
    trials = list_trials(selector)
    label = trials[0].label
    try:
        best = find_best(federation, trials, trial, out / "tuning" / f"{locate(out, federation.name, label).name}.json")
    except Exception as error:  # as in `run_cell`
        if bench.debug:
            raise
        return tell_failure(federation.name, label, error)
    return run_cell(federation, trials[best], bench, out, console)


def find_best(federation: Entry, trials: Sequence[Competitor], trial: Workbench, place: Path) -> int:
    """Returns the index of the best configuration, which is read if known; else all are run in one program."""
    configs = [configure(federation, one, trial.scale, trial.seeds) for one in trials]
    asked = [f"{'validation' if trial.tuning else 'test'} {config.fingerprint}" for config in configs]
    if place.exists() and (kept := read_json(place))["trials"] == asked:
        return kept["best"]
    runs = [trial.build(federation, config) for config in configs]
    histories = sweep([run.experiment for run in runs], runs[0].data, runs[0].seeds, runs[0].execution)
    areas = [float(mean_over_rounds(settle(history)).mean()) for history in histories]
    best = int(np.argmax(areas))
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(place, {"trials": asked, "areas": areas, "best": best})
    return best
