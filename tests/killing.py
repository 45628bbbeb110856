"""Runs the command line in separate processes, which end where a test wants them to.

They are forked from a process that has imported what they need, so that starting one costs no more than its run.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(
    [
        "fedjax_sel.runs.execute",
        "fedjax_sel.runs.sweep.execute",
        "fedjax_sel.cli",
        "fedjax_sel.papers",
        "orbax.checkpoint",
        "matplotlib.pyplot",
        "pyarrow.parquet",
        "sklearn.datasets",
        "fedjax_sel.report",
        "fedjax_sel.client_selection.gpfl",
        "fedjax_sel.correction.scaffold",
        "fedjax_sel.models.mlp",
    ]
)
PATIENCE = 300.0
"""Seconds to wait for a process to end or print something before giving up."""


class Program:
    """`fedjax-sel` in a process.

    Args:
      arguments: the command line's arguments.
      here: the working directory; the output goes to a file there.
      how: keyword arguments of `body`.
    """

    def __init__(self, arguments, here: Path, **how: Any):
        self._said = here / f"said-{time.monotonic_ns()}.txt"
        self._said.touch()
        self.process = FORK.Process(target=body, args=([str(a) for a in arguments], here, self._said), kwargs=how)
        self.process.start()

    @property
    def said(self) -> str:
        """Everything that it has printed so far."""
        return self._said.read_text(encoding="utf-8")

    def send(self, number: int) -> None:
        """Sends it a signal."""
        os.kill(self.process.pid, number)

    def says(self, words: str) -> None:
        """Waits until it has printed these words."""
        assert self.says_or_ends(words), self.said

    def says_or_ends(self, words: str) -> bool:
        """Waits until it has printed these words, or has ended without; returns whether it printed them."""
        until = time.monotonic() + PATIENCE
        while words not in self.said:
            if not self.process.is_alive():
                return words in self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """Kills it if it has not ended, and waits for that."""
        self.process.kill()
        self.process.join()

    def ended(self, within: float = PATIENCE) -> int:
        """Waits at most `within` seconds for its end; returns the exit status, or minus the signal that killed it."""
        self.process.join(within)
        if self.process.is_alive():
            self.kill()
            raise AssertionError(f"it did not end: {self.said}")
        assert self.process.exitcode is not None
        return self.process.exitcode


def body(
    arguments: list[str],
    here: Path,
    said: Path,
    *,
    at: tuple[str, str] | None = None,
    devices: int | None = None,
    **how: Any,
) -> None:
    """Runs the command line in this process.

    Args:
      arguments, here, said: as for `Program`.
      at: an audit event of Python and a path; this process is killed when the event names the path.
      devices: number of devices of a CPU, which is used even if there are others; None: as the command line has it.
      how: `chunk=(number, action)`: acts in that chunk of this process; `saved=(round, action)`: acts when this process
        has begun to write that round's checkpoint; `before_metrics=action`: acts before the metrics are written;
        `pause`: that of the checkpoints; `heartbeat`: that of several processes.
    """
    gc.freeze()  # the million objects of imported modules
    gc.set_threshold(100_000, 20, 20)
    os.chdir(here)
    with open(said, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.update(COLUMNS="160")
    import jax

    from fedjax_sel.cli import main
    from fedjax_sel.engine import checkpoint, distributed, driver
    from fedjax_sel.runs import execute, files

    if devices is not None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", devices)
    jax.config.update("jax_compilation_cache_dir", str(Path(os.environ["FEDJAX_SEL_CACHE"]) / "killed"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    execute.Checkpoints = partial(checkpoint.Checkpoints, pause=how.pop("pause", 0.0))  # type: ignore[misc]
    if at is not None:
        sys.addaudithook(partial(killed_at, *at))
    if (chosen := how.pop("chunk", None)) is not None:
        driver.run_chunk = In(driver.run_chunk, *chosen)  # type: ignore[assignment]
    if (chosen := how.pop("saved", None)) is not None:
        checkpoint.Checkpoints.save = partialmethod(save_and, checkpoint.Checkpoints.save, *chosen)  # type: ignore
    distributed.HEARTBEAT = how.pop("heartbeat", distributed.HEARTBEAT)
    if (action := how.pop("before_metrics", None)) is not None:
        files.write_metrics = In(files.write_metrics, 1, action)  # type: ignore[assignment]
    assert not how, how
    try:
        main(arguments)
    finally:  # the interpreter does this on exit, but not in a forked process
        if jax.distributed.is_initialized():
            jax.distributed.shutdown()


def killed_at(event: str, path: str, happens: str, named: tuple) -> None:
    """An audit hook that kills this process (SIGKILL) when an event names a path."""
    if happens == event and any(path in str(name) for name in named):
        kill()


class In:
    """Wraps a function so that its `number`-th call also runs an action."""

    def __init__(self, function: Any, number: int, action: Any):
        self.function, self.left, self.action = function, number, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        out = self.function(*arguments, **named) if self.left or self.action is kill else None
        if not self.left:
            self.action()
        return self.function(*arguments, **named) if out is None else out


def save_and(checkpoints: Any, save: Any, round: int, action: Any, point: Any, mark: str) -> None:
    """Saves as `Checkpoints.save` does, and runs an action once the state after a round has begun to be written."""
    save(checkpoints, point, mark)
    if point.round == round:
        action()


def written() -> None:
    """Waits until no checkpoint is being written."""
    for thread in threading.enumerate():
        if thread.name.startswith("round-"):
            thread.join()


def kill() -> None:
    """Ends this process at once, as the system's OOM killer does, in the middle of a chunk that has begun."""
    os.kill(os.getpid(), signal.SIGKILL)


def terminate() -> None:
    """Sends this process SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)


def interrupt() -> None:
    """Sends this process SIGINT, as from a keyboard."""
    os.kill(os.getpid(), signal.SIGINT)


def hang() -> None:
    """Computes for hours."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    hours = jax.jit(lambda x: jax.lax.fori_loop(0, 10**9, lambda _, x: jnp.tanh(x @ x), x))(jnp.ones((64, 64)))
    print("computing for hours", flush=True)
    np.asarray(hours)  # waits as for the results of a chunk


def wait() -> None:
    """Waits for a file `go` in the working directory."""
    print("waiting", flush=True)
    until = time.monotonic() + PATIENCE
    while not Path("go").exists() and time.monotonic() < until:
        time.sleep(0.02)


def no_large_files() -> None:
    """Limits the size of files from now on, which to a writer looks like a full disk."""
    written()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fill() -> None:
    """Fills the disk of the folder `disk`."""
    written()
    block = b"0" * 4096
    with open("disk/ballast", "wb", buffering=0) as file:
        try:
            while file.write(block):
                pass
        except OSError:
            return
