"""Execution of experiments: the options that change how and how long a run computes, but not its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedjax_sel.engine.callback import AnyCallback
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.layout import Layout


@dataclass(frozen=True)
class Execution:
    """How `simulate` and `sweep` run.

    Attributes:
      layout: `"auto"`, `"vmap"`, `"scan"` or a `Layout`; None: `"auto"`.
      mesh: over how many devices (of all hosts) seeds, and the clients of a cohort, are divided; None: one device;
        `"auto"`: of a CPU that JAX sees as several devices as many as help, else one.
      chunk: rounds between two looks of the host; None: about a twentieth of the run.
      callbacks: told between chunks (`engine.callback.Callback`); a true answer ends the run.
      checkpoints: saved between chunks; a run that has some goes on from the newest, to the same result bit for bit.
      memory: bytes that a device may use; None: what it has.
      debug: without compilation, one client at a time; an error names the round and the stage.

    Raises:
      ValueError: a chunk of less than one round.

    >>> Execution(layout="scan", chunk=10).chunk
    10
    """

    layout: Layout | str | None = None
    mesh: tuple[int, int] | str | None = None
    chunk: int | None = None
    callbacks: Sequence[AnyCallback] = ()
    checkpoints: Checkpoints | None = None
    memory: int | None = None
    debug: bool = False

    def __post_init__(self):
        """Refuses a chunk of no rounds."""
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"chunk is {self.chunk}; it must be at least 1 round, or None")
