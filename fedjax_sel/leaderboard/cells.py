"""The cells of the leaderboard (one selector on one federation), run by programs that federations share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.console import Console

from fedjax_sel.config import Config, build, resolve
from fedjax_sel.config.build import PROBLEM, Problem, Run, build_problem, load_source
from fedjax_sel.config.marks import CODE
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.engine.faults import say_problems
from fedjax_sel.engine.history import History
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.program import plan_layout
from fedjax_sel.leaderboard.federations import COMMON, Entry
from fedjax_sel.leaderboard.scales import Scale
from fedjax_sel.leaderboard.selectors import Competitor
from fedjax_sel.mistakes import OwnCodeError
from fedjax_sel.report.summary import summarize
from fedjax_sel.runs import layout
from fedjax_sel.runs.execute import execute, say_on
from fedjax_sel.runs.sweep.programs import DrawnFederation, draw_seeds

FINISHED, LEFT_OUT, FAILED = "finished", "left out", "failed"
"""The status of a cell: it has numbers, it cannot run on the federation, or its code raised an error."""


@dataclass(frozen=True)
class Cell:
    """A selector on a federation.

    Attributes:
      federation, selector: their names.
      status: finished, left out or failed.
      reason: why it is not finished.
      history: the history of a finished cell; None: only its numbers are known.
      commit: the commit that ran it; None: it was not run from a checkout.
      seconds: the seconds that it ran.
      remarks: what went wrong in it (`engine.faults.say_problems`), such as seeds that diverged; empty: nothing.
    """

    federation: str
    selector: str
    status: str
    reason: str = ""
    history: History | None = field(default=None, repr=False)
    commit: str | None = None
    seconds: float = 0.0
    remarks: str = ""


def configure(federation: Entry, selector: Competitor, scale: Scale, seeds: Any = None, **changes: Any) -> Config:
    """Returns the configuration of a cell.

    Args:
      federation, selector: those of the cell.
      scale: the scale of the leaderboard.
      seeds: a count or numbers; None: the scale's.
      changes: new values of keys of the configuration.

    Raises:
      ValueError: a value has the wrong type, or the selector needs public examples and the federation has none.
    """
    if selector.public and federation.public is None:
        raise ValueError(f"{selector.name} needs public examples, and {federation.name} has none")
    training = dict(federation.config["local_training"])
    training["learning_rate"] *= selector.rate
    rounds = max(1, round(selector.horizon * scale.rounds))
    given = {
        **COMMON,
        **federation.config,
        **selector.configure(federation.config["cohort_size"]),
        **({"public": dict(federation.public or {})} if selector.public else {}),
        "local_training": training,
        "rounds": rounds,
        "evaluate_clients_every": rounds,
        "seeds": scale.seeds if seeds is None else seeds,
    }
    return resolve(given | changes)


class Workbench:
    """The federations of one family, drawn once and padded to one shape so that they share programs.

    Args:
      entries: the federations of the family.
      scale: the scale of the leaderboard.
      seeds: the seeds of the runs.
      tuning: whether accuracy is measured on the server's validation examples, so that nothing is chosen by the test
        examples, which other seeds share.
      debug: whether an error in a cell is raised instead of becoming its reason.

    Attributes:
      left_out: the reason for each federation that cannot be drawn here, by name.
      labels: the number of each client's examples in each class, by seed, for the others, by name.
    """

    def __init__(
        self, entries: Sequence[Entry], scale: Scale, seeds: Any = None, *, tuning: bool = False, debug: bool = False
    ):
        self.scale, self.seeds, self.tuning, self.debug = scale, seeds, tuning, debug
        self.left_out: dict[str, str] = {}
        self.labels: dict[str, Int[np.ndarray, "R N C"]] = {}
        self._sources: dict[str, Any] = {}
        self._problems: dict[str, Problem] = {}
        self._drawn: dict[str, dict[int, FederatedData]] = {}
        for entry in entries:
            if missing := entry.find_missing_keys():
                self.left_out[entry.name] = f"this version has no {missing[0]} in configurations"
                continue
            try:
                self._draw(entry)
            except (ValueError, FileNotFoundError) as error:
                self.left_out[entry.name] = str(error)
        self._pad()

    def build(self, federation: Entry, config: Config) -> Run:
        """Builds a cell's configuration on the federation that is already drawn."""
        run = build(config, problem=self._problem(config))
        public = run.data.public_examples(self._example(config)) if run.data.public is not None else None
        drawn = self._drawn[federation.name]
        mine = {seed: replace(one, public_x=public) for seed, one in drawn.items()}
        recipe = {name: getattr(run.data, name) for name in ("source", "partition", "holdout", "data_seed")}
        data = DrawnFederation(**recipe, devices=run.data.devices, public=run.data.public, by_seed=mine)
        return replace(run, data=data, execution=replace(run.execution, layout=self._plan_layout(run)))

    def _draw(self, entry: Entry) -> None:
        """Draws a federation for all seeds."""
        config = configure(entry, Competitor("uniform"), self.scale, self.seeds)
        run = build(config, problem=self._problem(config))
        drawn = draw_seeds(run).by_seed
        if self.tuning:
            drawn = {
                seed: replace(one, test_x=one.validation_x, test_y=one.validation_y) for seed, one in drawn.items()
            }
        self._drawn[entry.name] = drawn
        self.labels[entry.name] = np.stack([drawn[seed].count_labels() for seed in run.seeds])

    def _pad(self) -> None:
        """Pads all federations to the same number of places in total, and in the largest client.

        Places of a client beyond its last example are never read, so results do not change.
        """
        every = [one for drawn in self._drawn.values() for one in drawn.values()]
        if not every:
            return
        longest, places = max(one.longest for one in every), max(len(one.order) for one in every)
        for drawn in self._drawn.values():
            for seed, one in drawn.items():
                more = (0, places - len(one.order))
                order = np.pad(one.order, more)
                owner = np.pad(one.owner, more, constant_values=one.num_clients)  # as `federation.stack` pads them
                drawn[seed] = replace(one, order=order, owner=owner, longest=longest)

    def _plan_layout(self, run: Run) -> Layout:
        """Returns one layout for the same run on each federation of the family, so that they share its program."""
        every = [one for drawn in self._drawn.values() for one in drawn.values()]
        how = run.execution
        return replace(plan_layout(run.experiment, every, len(run.seeds), how.layout, how.mesh), mesh=None)

    def _problem(self, config: Config) -> Problem:
        """Returns the problem of a configuration, made once for all configurations that share it."""
        key = json.dumps({name: config[name] for name in PROBLEM}, sort_keys=True)
        if key not in self._problems:
            self._problems[key] = build_problem(config, source=self._source(config))
        return self._problems[key]

    def _source(self, config: Config) -> Any:
        """Returns the examples of a configuration, loaded once."""
        key = json.dumps(config["data"], sort_keys=True)
        if key not in self._sources:
            self._sources[key] = load_source(config["data"])
        return self._sources[key]

    def _example(self, config: Config) -> Any:
        """Returns the dataset of a configuration for the first seed."""
        source = self._source(config)
        return source(config.seeds[0]) if callable(source) else source


def run_cell(
    federation: Entry, selector: Competitor, bench: Workbench, out: Path, console: Console, announce: bool = False
) -> Cell:
    """Returns a cell, which is read if it is finished and run otherwise; an error in it becomes its reason.

    Args:
      federation, selector: those of the cell.
      bench: the workbench that has drawn the federation.
      out: the folder of the leaderboard.
      console: where progress is shown.
      announce: whether to print device and layout.

    Raises:
      FolderError: the cell's folder holds something else, such as a run of other seeds, or another process uses it.
      SystemExit: a signal ended the run; completed rounds are kept.
    """
    name = (federation.name, selector.label)
    if federation.name in bench.left_out:
        return Cell(*name, LEFT_OUT, bench.left_out[federation.name])
    try:
        config = configure(federation, selector, bench.scale, bench.seeds)
        state = config["client_selection"].get(CODE, "")  # a user's selector that was edited is a different one
        place = locate(out, federation.name, f"{selector.label}-{state}" if state else selector.label)
        if layout.check(place, config, extend=False) == "finished":
            return finish(*name, layout.read(place)[0], place)
        history = execute(
            f"{federation.name}, {selector.label}",
            config,
            place,
            run=bench.build(federation, config),
            figures=False,
            keep_checkpoints=False,
            announce=announce,
            console=console,
            say=say_on(console),
            one_of=out,
        )
        return finish(*name, history, place)
    except layout.FolderError:
        raise
    except Exception as error:  # a user's selector may raise anything, and the others continue
        if bench.debug:
            raise
        return tell_failure(*name, error)


def finish(federation: str, selector: str, history: History, place: Path) -> Cell:
    """Returns the cell of a finished run in a folder."""
    return Cell(
        federation,
        selector,
        FINISHED,
        history=history,
        commit=layout.read_commit(place),
        seconds=history.about["seconds"],
        remarks="; ".join(say_problems(summarize(history))),
    )


def tell_failure(federation: str, selector: str, error: Exception) -> Cell:
    """Returns the cell of a selector that raised an error: left out if it does not fit the federation, else failed."""
    text = " ".join(str(error).split())
    mistaken = isinstance(error, OwnCodeError) and not isinstance(error.__cause__, ValueError)
    if isinstance(error, ValueError | FileNotFoundError) and not mistaken:
        return Cell(federation, selector, LEFT_OUT, text)
    return Cell(federation, selector, FAILED, f"{type(error).__name__}: {text}")


def locate(out: Path, federation: str, selector: str) -> Path:
    """Returns the folder of a cell's run.

    >>> locate(Path("out"), "digits", "lib/mine.py:Mine").as_posix()
    'out/cells/digits--lib-mine.py-Mine'
    """
    return out / "cells" / f"{federation}--{''.join(c if c.isalnum() or c in '._-' else '-' for c in selector)}"


def group_by_family(federations: Sequence[Entry]) -> Mapping[str, list[Entry]]:
    """Returns the federations grouped by family, that is, by the shapes of their arrays."""
    out: dict[str, list[Entry]] = {}
    for one in federations:
        out.setdefault(one.family, []).append(one)
    return out
