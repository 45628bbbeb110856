"""Reproduces a paper: checks what is asked, runs its cells and studies, and writes what they show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import compress
from pathlib import Path
from typing import Any

from rich.console import Console

from fedjax_sel import catalog
from fedjax_sel.config import resolve
from fedjax_sel.engine.driver import check_seeds
from fedjax_sel.papers.conditions import observe_conditions
from fedjax_sel.papers.earlier import Report, read_report
from fedjax_sel.papers.own import list_own_cells, tabulate_own
from fedjax_sel.papers.paper import Cell, Evidence, Finished, Paper, locate_cell, locate_reproduction
from fedjax_sel.papers.regime import merge_conditions
from fedjax_sel.papers.running import (
    describe_cells,
    describe_studies,
    find_finished,
    fingerprint_settings,
    run_cells,
    run_studies,
)
from fedjax_sel.papers.writing import Reproduction, write_reproduction
from fedjax_sel.report.commands import write_command
from fedjax_sel.runs import layout
from fedjax_sel.runs.lock import lock_folder


def reproduce(
    paper: Paper,
    *,
    scale: str | None = None,
    out: Path | None = None,
    seeds: int | Sequence[int] | None = None,
    add: Sequence[str] = (),
    finished: bool = False,
    known: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Runs a paper's experiments at a scale, and writes tables, figures, report and `summary.json`.

    A cell that is finished in `out` with the same configuration is read, not run again. So is a study of the same scale
    and seeds, whose other settings are code: if another commit made it, the terminal and the report say which. With
    `finished`, nothing is run, so another process may be running the rest: results that need missing cells or studies
    are left out, and the report says how many there are.

    Args:
      paper: the paper to reproduce.
      scale: one of the paper's; None: its default.
      out: folder; None: `runs/PAPER-SCALE`.
      seeds: a count or numbers; None: as many as the scale says.
      add: the user's strategies (`module:Name`), which run in every experiment that has a place for them.
      finished: whether to report on what is finished in `out`, and run nothing.
      known: with `finished`, the folder of an earlier report, for example from another machine: cells that are not
        finished in `out` have that report's measures, if their settings are the same. Their individual rounds are not
        known, so figures of rounds leave them out.
      console: where progress and tables are printed.

    Returns:
      The content of `summary.json`.

    Raises:
      ValueError: an unknown scale, a name that is not a strategy or has no place, a folder of something else or in use
        by another process, with `finished` a folder in which nothing is finished, or `known` without `finished` or
        without a report of this paper at this scale.
    """
    console = console or Console(quiet=True)
    scale = scale or paper.default_scale
    catalog.check_name("scale", scale, list(paper.seeds))
    seeds = paper.seeds[scale] if seeds is None else seeds
    out = Path(out or locate_reproduction(paper, scale))
    cells = paper.cells(scale)
    added = list_own_cells(cells, add)
    cells += [one.cell for one in added]
    configs = [resolve({**cell.config, "seeds": choose_seeds(seeds, cell)}) for cell in cells]
    for cell, config in zip(cells, configs, strict=True):  # everything is checked before anything runs
        layout.check(locate_cell(out, cell), config, extend=False)

    if known is not None and not finished:
        raise ValueError("known is for a report on what is finished; give finished (--finished), too")

    with nullcontext() if finished else lock_folder(out):
        began = time.perf_counter()
        numbers = check_seeds(seeds)
        here = find_finished(out, cells, configs) if finished else [True] * len(cells)
        elsewhere = {
            c.key: fingerprint_settings(g) for c, g, done in zip(cells, configs, here, strict=True) if not done
        }
        earlier = Report() if known is None else read_report(Path(known), paper.name, scale, cells, elsewhere)
        if not any(here) and not earlier.histories:
            raise ValueError(f"no cell of this reproduction is finished in {out}; leave out --finished to run it there")
        histories = run_cells(out, [*compress(cells, here)], [*compress(configs, here)], console)
        more = [tabulate_own([one for one in added if one.cell.key in histories], histories)] if added else []
        theirs = slice(len(cells) - len(added))  # the paper's claims, tables and figures do not see the user's cells
        cells, configs, here = cells[theirs], configs[theirs], here[theirs]
        every = {**earlier.histories, **histories}
        there = {cell.key: every[cell.key] for cell in cells if cell.key in every}
        unfinished = [cell.key for cell in cells if cell.key not in there]
        cells, configs = [*compress(cells, here)], [*compress(configs, here)]
        studies = run_studies(out, paper, scale, numbers, console, only_finished=finished)
        unfinished += [("study", name) for name in paper.studies if name not in studies]
        evidence = Evidence(Finished(there), Finished(studies)) if unfinished else Evidence(there, studies)
        conditions = observe_conditions(cells, configs, histories)
        for name, had in earlier.conditions.items():
            conditions[name] = merge_conditions(conditions.get(name), had)
        found = Reproduction(
            paper,
            scale,
            numbers,
            evidence,
            conditions,
            describe_cells(out, cells, configs, histories),
            describe_studies(out, studies),
            more,
            unfinished,
            earlier,
        )
        words = ["reproduce", paper.name, "--scale", scale]
        again = write_command(words, numbers, len(check_seeds(paper.seeds[scale])), add=add)
        summary = write_reproduction(found, out, again, console)
        console.print(
            f"{time.perf_counter() - began:.0f} s. Report, figures and summary.json are in [bold]{out}[/]",
            soft_wrap=True,
        )
    return summary


def choose_seeds(seeds: int | Sequence[int], cell: Cell) -> Any:
    """Returns the seeds of a cell: those of the run, or the first of them if it has a number of its own.

    So those that two cells have in common come first in both, and are paired.

    >>> own = Cell("one", "method", {"seeds": 2})
    >>> choose_seeds(5, own), choose_seeds([5, 6, 7], own), choose_seeds([5, 6, 7], Cell("one", "other", {}))
    (2, [5, 6], [5, 6, 7])
    """
    number = cell.config.get("seeds")
    if number is None:
        return seeds
    return number if isinstance(seeds, int) or not isinstance(number, int) else list(seeds)[:number]
