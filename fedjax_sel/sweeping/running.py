"""A sweep from the command line: its programs one after another, its folder, its end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fedjax_sel import folder
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.report import sweeps
from fedjax_sel.report.progress import progress
from fedjax_sel.report.stopping import stoppable
from fedjax_sel.running import GIB, keep_compiled_programs, use_cores
from fedjax_sel.sweeping import place as places
from fedjax_sel.sweeping.blocks import run_block
from fedjax_sel.sweeping.grid import Combination
from fedjax_sel.sweeping.programs import Block, blocks, built, grouped, together

ENDING = ("early_stopping",)
"""Callbacks that end a run before its last round."""


def run_in_folder(
    name: str, grid: Sequence[Combination], place: Path, *, no_cache: bool = False, memory: float | None = None
) -> None:
    """Run all combinations in a folder, those that differ only in floats by one program; go on with what is not done.

    Args:
      name: in the progress bar.
      grid: the combinations.
      place: the sweep's folder.
      no_cache: do not keep compiled programs on disk.
      memory: GiB that a device may use; None: what it has.

    Raises:
      ValueError: one of them cannot run; before any of them does.
      SystemExit: with 128 + its number, where a signal ended the sweep.
    """
    console, errors = Console(), Console(stderr=True)
    check_callbacks(grid)
    places.check(place, grid)
    if places.complete(place, grid):
        console.print(sweeps.in_terminal(name, places.table(place, grid), list(grid[0].values)))
        console.print(Text.assemble("Nothing was run: the finished sweep is in ", (str(place), "bold")), soft_wrap=True)
        return
    if grid[0].config["mesh"] is None:
        use_cores()
    if not no_cache:
        keep_compiled_programs()
    allowed = None if memory is None else int(memory * GIB)
    work = planned(grid, allowed)
    say = functools.partial(errors.print, style="yellow", soft_wrap=True, highlight=False, markup=False)
    before, announce, data, group = compiled(), True, None, None
    with folder.held(place), progress(console, name, len(grid)) as bar, stoppable(say) as stopper:
        places.begin(place, grid)
        for number, block in enumerate(work, start=1):
            if not places.unfinished(place, block.members):
                continue
            if data is None or block.group is not group:
                data, group = together(block.runs[0]), block.group
            part = functools.partial(bar.part, f"program {number}/{len(work)} · ", announce=announce)
            done = len(grid) - len(places.unfinished(place, grid))
            run_block(block, data, place, part, done, stopper, allowed, say)
            announce = False
            if stopper.signal and (left := places.unfinished(place, grid)):
                done = f"stopped with {len(grid) - len(left)} of {len(grid)} combinations finished"
                say(f"{done}; kept in {place}: the same command goes on from there")
                raise SystemExit(128 + stopper.signal)
        bar.reach(len(grid))
        table = places.write(place, grid)
    console.print(sweeps.in_terminal(name, table, list(grid[0].values)))
    console.print(f"programs run: {len(work)}, compiled: {compiled() - before}", highlight=False)
    console.print(Text.assemble("The sweep is in ", (str(place), "bold")), soft_wrap=True)


def compiled() -> int:
    """How many programs of rounds there are."""
    return run_chunk.programs


def planned(grid: Sequence[Combination], memory: int | None) -> list[Block]:
    """What is run one after another; everything is checked, nothing compiled.

    Raises:
      ValueError, FileNotFoundError: a combination cannot run.
    """
    groups = grouped(grid, built(grid))
    return [block for group in groups for block in blocks(group, together(group.runs[0]), memory)]


def check_callbacks(grid: Sequence[Combination]) -> None:
    """Raise `ValueError` where a callback would end a run before its last round."""
    for one in grid:
        if ending := [name for name in one.config["callbacks"] if name in ENDING]:
            raise ValueError(
                f"callbacks.{ending[0]} cannot be used in a sweep, which runs every combination to its end; "
                "`fedjax-sel run` runs one with it"
            )
