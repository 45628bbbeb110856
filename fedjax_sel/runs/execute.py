"""Executes a configuration in its folder, for every command: `run`, `reproduce`, `pretrain`; `sweep` shares parts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from fedjax_sel.config import Config, build
from fedjax_sel.config.build import Run
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.distributed import check_same, is_first, max_over_processes, wait_for_all
from fedjax_sel.engine.history import History
from fedjax_sel.report.progress import show_progress
from fedjax_sel.runs import layout, pretrained
from fedjax_sel.runs.lock import FolderLock
from fedjax_sel.runs.stopping import Stopper, catch_signals
from fedjax_sel.types import Variables

GIB = 2**30

Say = Callable[[str], None]
"""A function that shows a line to the user."""


def execute(
    name: str,
    config: Config,
    place: Path,
    *,
    run: Run | None = None,
    begin: Variables | None = None,
    memory: float | None = None,
    debug: bool = False,
    figures: bool = True,
    keep_checkpoints: bool = True,
    keep_variables: bool = False,
    announce: bool = True,
    console: Console | None = None,
    say: Say | None = None,
    one_of: Path | None = None,
) -> History:
    """Returns the history of the run in a folder, which is read if the run is finished, else executed and saved.

    If there are several processes, the first one writes. A run that a callback of the configuration ends is finished.

    Args:
      name: name in the progress bar.
      config: the configuration of the run.
      place: the folder of the run.
      run: the result of `build` for the configuration, which saves loading its examples again; None: it is built.
      begin: initial variables of the model, instead of those that `model.pretrained` names.
      memory: GiB that a device may use; None: all that it has.
      debug: whether to run without compilation and without checkpoints.
      figures: whether to draw figures and write the report.
      keep_checkpoints: whether to keep the checkpoints when the run is finished.
      keep_variables: whether to write the final model of the first seed, for other runs to start from.
      announce: whether to print device, layout and memory when the run begins.
      console: where to show progress; None: the first process's standard output.
      say: called with lines that the user should see; None: prints them to standard error.
      one_of: the folder of several runs, of which this is one: a stopped run names it as the place where it is kept,
        and a signal in the last chunk also ends the program, after the run is saved; None: the run is alone.

    Raises:
      FolderError: the folder holds something else, or another process uses it.
      SystemExit: a signal ended the run; the code is 128 + its number, and completed rounds are kept.
    """
    now = layout.check(place, config)
    finished = now == "finished"
    wait_for_all()
    check_same(finished)
    if finished:
        return layout.read(place)[0]
    console = console or Console(quiet=not is_first())
    say = say or say_on_stderr()
    exported = [path.name for path in layout.list_exported(place, config)] if now == "extended" else []
    run = build(config, begin) if run is None else run
    rounds, kept_in = run.experiment.rounds, one_of or place
    points = None if debug else Checkpoints(place / layout.CHECKPOINTS, say=say)
    with (
        FolderLock(place, config) as lock,
        show_progress(console, name, rounds, announce=announce) as bar,
        catch_signals(say) as stopper,
    ):
        if exported and is_first():
            say(f"{', '.join(exported)}: of the shorter run, and removed when it goes on; export the model again")
        callbacks = [lock, bar, *run.callbacks(place), stopper] if is_first() else [stopper]
        history = run.simulate(callbacks=callbacks, checkpoints=points, memory=to_bytes(memory), debug=debug)
        stopper.signal = max_over_processes(stopper.signal)
        if history.rounds < rounds:
            done = f"after {history.rounds} of {rounds} rounds"
            exit_if_stopped(stopper, say, done, None if debug else kept_in)
            say(f"ended by a callback {done}")
        if is_first():
            if keep_variables:
                pretrained.save(place / pretrained.FILE, pretrained.take_first_seed(history.variables))
            layout.save(place, history, config, figures=figures)
            if points is not None and not keep_checkpoints:
                points.clear()
        wait_for_all()  # longer than JAX waits for the other processes when one exits
        if one_of is not None:
            exit_if_stopped(stopper, say, "after this run", kept_in)
    return history


def exit_if_stopped(stopper: Stopper, say: Say, done: str, kept_in: Path | None) -> None:
    """Ends the program if a signal asked for it, after a message that says what is done and kept.

    Args:
      stopper: the callback that listened for signals.
      say: shows the message.
      done: how much is done, as in "after 3 of 10 rounds".
      kept_in: the folder that keeps the run; None: nothing is kept.

    Raises:
      SystemExit: a signal came; the code is 128 + its number.
    """
    if stopper.signal:
        goes_on = f"kept in {kept_in}: the same command goes on from there"
        say(f"stopped {done}; {'debugging keeps nothing' if kept_in is None else goes_on}")
        raise SystemExit(128 + stopper.signal)


def say_on(console: Console) -> Say:
    """Returns a function that prints a line in yellow."""
    return functools.partial(console.print, style="yellow", soft_wrap=True, highlight=False, markup=False)


def say_on_stderr() -> Say:
    """Returns a function that prints a line in yellow on the first process's standard error."""
    return say_on(Console(stderr=True, quiet=not is_first()))


def to_bytes(gib: float | None) -> int | None:
    """Returns GiB as bytes; None stays None. Raises `ValueError` if it is not a positive number."""
    if gib is not None and not 0 < gib < math.inf:
        raise ValueError(f"memory is {gib} GiB; it must be a number above 0")
    return None if gib is None else int(gib * GIB)
