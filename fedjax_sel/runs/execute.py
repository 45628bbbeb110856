"""Executes a configuration in its folder, for every command: `run`, `reproduce`, `pretrain`; `sweep` shares parts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from fedjax_sel.config import Config, build
from fedjax_sel.config.build import Run
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.distributed import is_first, max_over_processes, wait_for_all
from fedjax_sel.engine.history import History
from fedjax_sel.report.progress import show_progress
from fedjax_sel.report.stopping import Stopper, catch_signals
from fedjax_sel.runs import layout, pretrained
from fedjax_sel.runs.lock import FolderLock
from fedjax_sel.types import Variables

GIB = 2**30

Say = Callable[[str], None]
"""Takes a line that the user should see."""


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
    more_follow: bool = False,
    announce: bool = True,
    console: Console | None = None,
    say: Say | None = None,
    kept_in: Path | None = None,
) -> History:
    """Returns the history of a run in a folder: read if it is finished, else run, with progress, and saved.

    Of several processes the first one writes. A run that a callback of the configuration ends is a finished one.

    Args:
      name: in the progress bar.
      config: of the run.
      place: its folder.
      run: what `build` gave for the configuration, so that its examples are not loaded again; None: it is built.
      begin: variables that the model begins with, instead of those that `model.pretrained` names.
      memory: GiB that a device may use; None: what it has.
      debug: without compilation, and without checkpoints.
      figures: draw and write the report.
      keep_checkpoints: False: they are removed when the run is finished.
      keep_variables: write the final model of the first seed, for other runs to begin with.
      more_follow: other runs follow: a signal in the last chunk ends the program as well, after the run is saved.
      announce: print device, layout and memory when the run begins.
      console: where progress goes; None: the first process's standard output.
      say: called with lines that the user should see; None: standard error.
      kept_in: the folder in which a stopped run says it is kept; None: `place`.

    Raises:
      FolderError: the folder holds something else, or another process uses it.
      SystemExit: with 128 + its number, where a signal ended the run; what is done is kept.
    """
    if layout.check(place, config) == "finished":
        return layout.read(place)[0]
    console = console or Console(quiet=not is_first())
    say = say or say_on_stderr()
    run = build(config, begin) if run is None else run
    rounds, kept_in = run.experiment.rounds, kept_in or place
    points = None if debug else Checkpoints(place / layout.CHECKPOINTS, say=say)
    with (
        FolderLock(place, config) as lock,
        show_progress(console, name, rounds, announce=announce) as bar,
        catch_signals(say) as stopper,
    ):
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
        wait_for_all()  # longer than JAX waits for a process at its end
        if more_follow:
            exit_if_stopped(stopper, say, "after this run", kept_in)
    return history


def exit_if_stopped(stopper: Stopper, say: Say, done: str, kept_in: Path | None) -> None:
    """Ends the program if a signal asked for it, after a line that says what is done and kept.

    Args:
      stopper: that listened.
      say: takes the line.
      done: as in "after 3 of 10 rounds".
      kept_in: the folder that keeps it; None: nothing is kept.

    Raises:
      SystemExit: with 128 + the number of the signal.
    """
    if stopper.signal:
        goes_on = f"kept in {kept_in}: the same command goes on from there"
        say(f"stopped {done}; {'debugging keeps nothing' if kept_in is None else goes_on}")
        raise SystemExit(128 + stopper.signal)


def say_on_stderr() -> Say:
    """Returns a function that prints a line in yellow on the first process's standard error."""
    errors = Console(stderr=True, quiet=not is_first())
    return functools.partial(errors.print, style="yellow", soft_wrap=True, highlight=False, markup=False)


def to_bytes(gib: float | None) -> int | None:
    """Returns GiB as bytes; None stays None."""
    return None if gib is None else int(gib * GIB)
