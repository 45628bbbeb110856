"""Runs the leaderboard: every unfinished cell, then tables, figures, findings and pages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int
from rich.console import Console

from fedjax_sel.catalog import check_name
from fedjax_sel.config.own import check_own_name, load_class
from fedjax_sel.engine.driver import check_seeds
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.leaderboard import page
from fedjax_sel.leaderboard.cells import FAILED, FINISHED, LEFT_OUT, Cell, Workbench, group_by_family, run_cell
from fedjax_sel.leaderboard.federations import Entry
from fedjax_sel.leaderboard.findings import find_studies
from fedjax_sel.leaderboard.known import describe_moved, join_known, read_known
from fedjax_sel.leaderboard.measures import build_tidy
from fedjax_sel.leaderboard.scales import SCALES, Scale, choose
from fedjax_sel.leaderboard.selectors import BASELINE, SELECTORS, VARIANTS, Competitor
from fedjax_sel.leaderboard.timing import ChoiceTimes
from fedjax_sel.leaderboard.tuning import SEEDS, tune
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.report.commands import write_command
from fedjax_sel.runs.lock import lock_folder


def run_leaderboard(
    scale: str = "small",
    *,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    out: Path | None = None,
    seeds: int | Sequence[int] | None = None,
    known: Path | None = None,
    console: Console | None = None,
    debug: bool = False,
) -> dict[str, Any]:
    """Runs the leaderboard at a scale, and writes the table, figures, findings and pages.

    A cell that is finished in `out` with the same configuration is read, not run again. A federation whose data is not
    on this machine is left out, and so is a selector on a federation that lacks what it needs; an error that a selector
    raises is reported in the table, and the other selectors continue.

    Args:
      scale: smoke, small or full.
      only: names or patterns of federations and selectors; the baseline is always included.
      add: the user's selectors, `module:Name` or `file.py:Name`.
      out: the folder; None: `runs/leaderboard-SCALE`.
      seeds: a count or numbers; None: as many as the scale has.
      debug: raise an error in a cell, instead of showing it in the table.
      known: the folder of an earlier leaderboard of the same scale and seeds, for example of another machine; its
        numbers count for all cells that are not run here. The baseline is run here, too, as it sets the budgets.
      console: where progress and tables are printed.

    Returns:
      The contents of `leaderboard.json`.

    Raises:
      ValueError: a scale, name or selector is unknown, `known` has no such leaderboard, or another process uses the
        folder.
    """
    console = console or Console(quiet=True)
    check_name("scale", scale, SCALES)
    size, out = SCALES[scale], Path(out or Path("runs") / f"leaderboard-{scale}")
    federations, selectors = choose(size, only, [make_competitor(name) for name in add])
    numbers = check_seeds(size.seeds if seeds is None else seeds)
    earlier = None if known is None else read_known(known, scale, numbers)
    with lock_folder(out):
        began = time.perf_counter()
        times = ChoiceTimes(out, console)
        cells, labels = run_cells(federations, selectors, size, list(numbers), out, console, times, debug)
        studies, tidy = find_studies(out, console), times.add_to(build_tidy(cells, labels))
        if earlier is not None:
            cells = add_remarks(cells, describe_moved(tidy, earlier[1]), console)
            cells, tidy = join_known(cells, tidy, earlier)
        named = only if earlier is None else ()  # an earlier leaderboard has cells that `only` does not name
        again = write_command(["leaderboard", "--scale", scale], numbers, size.seeds, only=named, add=add)
        summary = page.write(scale, numbers, cells, tidy, studies, out, console, again)
        console.print(
            f"{time.perf_counter() - began:.0f} s. Tables, figures and leaderboard.json are in [bold]{out}[/]",
            soft_wrap=True,
        )
    return summary


def make_competitor(name: str) -> Competitor:
    """Returns a user's selector, whose updates are averaged as in FedAvg.

    Raises:
      ValueError: it is not a selector, or is one of the library's.
    """
    if name in SELECTORS | VARIANTS:
        raise ValueError(f"{name} is a selector of the leaderboard already; --add takes module:Name or file.py:Name")
    check_own_name("--add", name)
    load_class("client selector", name, ClientSelector)
    return Competitor(name)


def run_cells(
    federations: Sequence[Entry],
    selectors: Sequence[Competitor],
    scale: Scale,
    seeds: list[int],
    out: Path,
    console: Console,
    times: ChoiceTimes,
    debug: bool = False,
) -> tuple[list[Cell], dict[str, Int[np.ndarray, "R N C"]]]:
    """Runs all cells and returns them, with the number of each client's examples in each class, by federation.

    Cells run selector by selector within a family of federations, so that each program is compiled once and dropped
    when the family is done. With `debug` an error in a cell is raised.
    """
    cells: list[Cell] = []
    labels: dict[str, Int[np.ndarray, "R N C"]] = {}
    total = len(federations) * sum(2 if scale.tuned and not one.varies else 1 for one in selectors)
    announced = False
    for family, entries in group_by_family(federations).items():
        compiled = run_chunk.programs
        with console.status(f"drawing {family}"):
            bench = Workbench(entries, scale, seeds, debug=debug)
            trial = Workbench(entries, scale, list(SEEDS), tuning=True, debug=debug) if scale.tuned else None
        labels |= bench.labels
        for name, reason in bench.left_out.items():
            console.print(f"{name} is left out: {reason}", style="yellow", soft_wrap=True, markup=False)
        for selector in selectors:
            for entry in entries:
                cell = run_cell(entry, selector, bench, out, console, announce=not announced)
                announced |= cell.status == FINISHED
                cells.append(cell)
                if cell.status != FINISHED and entry.name not in bench.left_out:
                    tell(cell, console)
                times.measure(cell, entry, selector, bench)
                if trial is not None and cell.status == FINISHED and not selector.varies:
                    cells.append(tune(entry, selector, trial, bench, out, console))
        programs = run_chunk.programs - compiled
        console.print(f"{family}: {len(cells)} of {total} cells, {programs} programs", highlight=False)
        jax.clear_caches()
    return cells, labels


def add_remarks(cells: Sequence[Cell], remarks: Mapping[str, str], console: Console) -> list[Cell]:
    """Prints remarks on the baseline, by federation, and returns the cells with them."""
    for federation, remark in remarks.items():
        line = f"{BASELINE} on {federation}: {remark}"
        console.print(line, style="yellow", soft_wrap=True, markup=False, highlight=False)
    return [
        replace(cell, remarks="; ".join(filter(None, [cell.remarks, remarks.get(cell.federation)])))
        if cell.selector == BASELINE
        else cell
        for cell in cells
    ]


def tell(cell: Cell, console: Console) -> None:
    """Prints why a cell has no numbers."""
    style = {LEFT_OUT: "yellow", FAILED: "red"}[cell.status]
    line = f"{cell.selector} on {cell.federation}, {cell.status}: {cell.reason}"
    console.print(line, style=style, soft_wrap=True, markup=False, highlight=False)
