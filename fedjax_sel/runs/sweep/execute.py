"""Executes a sweep in its folder, one program after the other."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from fedjax_sel.catalog import see
from fedjax_sel.engine.scan import run_chunk
from fedjax_sel.report.progress import show_progress
from fedjax_sel.runs.execute import exit_if_stopped, say_on_stderr, to_bytes
from fedjax_sel.runs.lock import lock_folder
from fedjax_sel.runs.stopping import catch_signals
from fedjax_sel.runs.sweep import layout
from fedjax_sel.runs.sweep.blocks import check_block, list_unused, run_block
from fedjax_sel.runs.sweep.grid import Combination
from fedjax_sel.runs.sweep.programs import Block, build_all, draw_seeds, group_by_program, split_group

ENDING = ("early_stopping",)
"""Callbacks that end a run before its last round."""


def execute_sweep(
    name: str,
    grid: Sequence[Combination],
    place: Path,
    *,
    memory: float | None = None,
    keep_models: bool = False,
    keep_checkpoints: bool = False,
    figures: bool = False,
    console: Console | None = None,
) -> pd.DataFrame:
    """Returns the table of a sweep in a folder: read if it is finished, else what is not done is run and saved.

    Combinations that differ only in floats run by one program.

    Args:
      name: in the progress bar.
      grid: the combinations.
      place: the sweep's folder.
      memory: GiB that a device may use; None: what it has.
      keep_models: keep the final models of every combination.
      keep_checkpoints: keep those of the end, from which the sweep can go on to more rounds.
      figures: draw the figures of every combination and write its report, which takes a second or two each;
        `fedjax-sel show` does so for one that lacks them.
      console: where progress goes; None: standard output.

    Raises:
      ValueError: one of them cannot run; none has run yet.
      FolderError: finished runs lack the models or checkpoints that are to be kept.
      SystemExit: a signal ended the sweep (the code is 128 + its number); what is done is kept.
    """
    check_callbacks(grid)
    layout.check(place, grid)
    layout.check_kept(place, grid, keep_models=keep_models, keep_checkpoints=keep_checkpoints)
    if layout.is_complete(place, grid):
        if figures:
            layout.draw_missing(place, grid)
        return layout.read_table(place, grid)
    console, say, allowed = console or Console(), say_on_stderr(), to_bytes(memory)
    work = plan(grid, allowed)
    compiled, announce, data, of_group = run_chunk.programs, True, None, None
    with lock_folder(place), show_progress(console, name, len(grid)) as bar, catch_signals(say) as stopper:
        if layout.continues(place, grid):  # before anything of the finished sweep is changed
            for block in work:
                check_block(block, draw_seeds(block.runs[0]), place, allowed, say)
        elif unused := list_unused(place, work):
            say(
                f"nothing goes on from {len(unused)} checkpoints in {place}, of programs that were divided otherwise, "
                "as by another --memory: combinations that are not finished begin again"
            )
        layout.create(place, grid)
        for number, block in enumerate(work, start=1):
            if not layout.list_unfinished(place, block.members):
                continue
            if data is None or block.group is not of_group:
                data, of_group = draw_seeds(block.runs[0]), block.group
            part = functools.partial(bar.make_part, f"program {number}/{len(work)} · ", announce=announce)
            done = len(grid) - len(layout.list_unfinished(place, grid))
            run_block(
                block,
                data,
                place,
                part,
                done,
                stopper,
                memory=allowed,
                say=say,
                keep_models=keep_models,
                keep_checkpoints=keep_checkpoints,
                figures=figures,
            )
            announce = False
            if left := layout.list_unfinished(place, grid):
                done = f"with {len(grid) - len(left)} of {len(grid)} combinations finished"
                exit_if_stopped(stopper, say, done, place)
        bar.move_to(len(grid))
        if figures:
            layout.draw_missing(place, grid)
        table = layout.write(place, grid, keep_checkpoints=keep_checkpoints)
    console.print(f"programs run: {len(work)}, compiled: {run_chunk.programs - compiled}", highlight=False)
    return table


def plan(grid: Sequence[Combination], memory: int | None) -> list[Block]:
    """Returns what is run one after another; everything is checked, nothing is compiled or trained.

    Args:
      grid: the combinations.
      memory: bytes that a device may use; None: what it has.

    Raises:
      ValueError, FileNotFoundError: a combination cannot run.
    """
    groups = group_by_program(grid, build_all(grid))
    return [block for one in groups for block in split_group(one, draw_seeds(one.runs[0]), memory)]


@see("docs/how-to/sweeps.md")
def check_callbacks(grid: Sequence[Combination]) -> None:
    """Raises `ValueError` if a callback would end a run before its last round."""
    for one in grid:
        if ending := [name for name in one.config["callbacks"] if name in ENDING]:
            raise ValueError(
                f"callbacks.{ending[0]} cannot be used in a sweep, which runs every combination to its end; "
                "`fedjax-sel run` runs one with it"
            )
