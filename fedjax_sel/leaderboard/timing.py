"""The time of every selector's choice on one federation, kept beside the leaderboard's cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from fedjax_sel.config.marks import CODE
from fedjax_sel.engine.choice_time import time_choice
from fedjax_sel.leaderboard.cells import FINISHED, Cell, Workbench, configure
from fedjax_sel.leaderboard.federations import Entry
from fedjax_sel.leaderboard.measures import CHOICE
from fedjax_sel.leaderboard.selectors import Competitor
from fedjax_sel.runs.files import read_json, write_json

KEPT = "choices.json"


class ChoiceTimes:
    """The time of every selector's choice on one federation, stored in the leaderboard's folder.

    Args:
      out: the leaderboard's folder.
      console: where it reports selectors that could not be timed.
    """

    def __init__(self, out: Path, console: Console):
        self._place, self._console = out / "studies" / KEPT, console
        self.times: dict[str, dict[str, dict[str, Any]]] = {}
        if self._place.exists():
            self.times = read_json(self._place)

    def measure(self, cell: Cell, federation: Entry, selector: Competitor, bench: Workbench) -> None:
        """Times a selector that finished a cell, on the federation of the other times, unless its code was timed."""
        if cell.status != FINISHED or federation.name not in (self.times or {federation.name: {}}):
            return
        known = self.times.setdefault(federation.name, {})
        config = configure(federation, selector, bench.scale, bench.seeds)
        code = config["client_selection"].get(CODE, "")
        if known.get(selector.label, {}).get(CODE) == code:
            return
        run = bench.build(federation, config)
        try:
            seconds = float(time_choice(run.experiment, run.data.draws(run.seeds)[0]).min())
            known[selector.label] = {"seconds": seconds, CODE: code}
        except Exception as error:  # a user's selector may raise anything when its signals are made up
            text = f"{selector.label} is not timed alone: {type(error).__name__}: {error}"
            self._console.print(text, style="yellow", markup=False)
        self._place.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._place, self.times)

    def add_to(self, tidy: pd.DataFrame) -> pd.DataFrame:
        """Returns the tidy table with the times of its selectors, in microseconds, appended."""
        rows = [
            {**dict.fromkeys(tidy.columns, ""), "federation": federation, "selector": name, "seed": 0}
            | {"measure": CHOICE, "value": 1e6 * taken["seconds"], "censored": False}
            for federation, times in self.times.items()
            for name, taken in times.items()
            if name in set(tidy["selector"])
        ]
        return pd.concat([tidy, pd.DataFrame(rows)], ignore_index=True) if rows else tidy
