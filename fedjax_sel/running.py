"""A run from the command line: its folder, its progress, its end."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

import jax
from rich.console import Console
from rich.text import Text

from fedjax_sel import config as configuration
from fedjax_sel import folder
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.distributed import is_first, max_over_processes
from fedjax_sel.engine.history import History
from fedjax_sel.report import summary
from fedjax_sel.report.progress import progress
from fedjax_sel.report.stopping import stoppable

GIB = 2**30


def run_in_folder(
    name: str, config: dict, place: Path, *, debug: bool = False, no_cache: bool = False, memory: float | None = None
) -> History | None:
    """Run a configuration in a folder with progress, checkpoints and a summary; None where it was finished before.

    Of several processes the first one writes. A run that a callback of the configuration ended is a finished one.

    Args:
      name: in the progress bar.
      config: resolved.
      place: the run's folder.
      debug: without compilation, and without checkpoints.
      no_cache: do not keep compiled programs on disk.
      memory: GiB that a device may use; None: what it has.

    Raises:
      SystemExit: with 128 + its number, where a signal ended the run.
    """
    if config["mesh"] is None:
        use_cores()
    console, errors = Console(quiet=not is_first()), Console(stderr=True, quiet=not is_first())

    def show(history: History, said: str) -> None:
        console.print(summary.in_terminal(folder.title(config), summary.results(history)))
        console.print(Text.assemble(said, (str(place), "bold")), soft_wrap=True)

    if folder.check(place, config) == "finished":
        history, _ = folder.read(place)
        show(history, "Nothing was run: the finished run is in ")
        return None
    if not no_cache:
        keep_compiled_programs()
    built = configuration.build(config)
    say = functools.partial(errors.print, style="yellow", soft_wrap=True, highlight=False, markup=False)
    points = None if debug else Checkpoints(place / folder.CHECKPOINTS, say=say)
    allowed = None if memory is None else int(memory * GIB)
    with (
        folder.Hold(place, config) as hold,
        progress(console, name, built.experiment.rounds) as bar,
        stoppable(say) as stopper,
    ):
        callbacks = [hold, bar, *built.callbacks(place), stopper] if is_first() else [stopper]
        history = built.simulate(callbacks=callbacks, checkpoints=points, memory=allowed, debug=debug)
        stopper.signal = max_over_processes(stopper.signal)
        if stopper.signal and history.rounds < built.experiment.rounds:
            done = f"stopped after {history.rounds} of {built.experiment.rounds} rounds"
            kept = "debugging keeps nothing" if debug else f"kept in {place}: the same command goes on from there"
            say(f"{done}; {kept}")
            raise SystemExit(128 + stopper.signal)
        if history.rounds < built.experiment.rounds:
            say(f"ended by a callback after {history.rounds} of {built.experiment.rounds} rounds")
        if is_first():
            folder.save(place, history, config)
    show(history, "The run is in ")
    return history


def use_cores() -> None:
    """Let JAX see a device in every core of a CPU, among which rounds and seeds are divided; before anything of JAX.

    Nothing changes where JAX has begun, where the number of devices is chosen already, or in one of several processes.
    """
    chosen = (
        "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
        or getattr(jax.config, "jax_num_cpu_devices", -1) > 0
    )
    if chosen or jax.distributed.is_initialized():
        return
    with contextlib.suppress(RuntimeError):  # JAX has begun
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jax.config.update("jax_num_cpu_devices", cores or 1)


def keep_compiled_programs() -> None:
    """Let XLA keep what it compiles, so that the next start need not; where that folder cannot be made, do without."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    place = Path(os.environ.get("FEDJAX_SEL_CACHE") or "~/.cache/fedjax_sel").expanduser() / "xla"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
