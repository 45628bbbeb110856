"""Execution of experiments: the options that change how and how long a run computes, but not its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedjax_sel.catalog import check_name
from fedjax_sel.engine.callback import AnyCallback, check_callbacks
from fedjax_sel.engine.checkpoint import Checkpoints
from fedjax_sel.engine.layout import Layout
from fedjax_sel.pytree import is_real, is_whole, show, to_plain

PLACES = ("auto", "device", "host")
"""The valid values of `Execution.examples_on`."""


@dataclass(frozen=True)
class Execution:
    """How `simulate` and `sweep` run.

    Attributes:
      layout: `"auto"`, `"vmap"`, `"scan"` or a `Layout`; None: `"auto"`.
      mesh: over how many devices (of all hosts) the seeds, and the clients of a cohort, are divided; None: one device;
        `"auto"`: as many as help on a CPU that JAX sees as several devices, otherwise one.
      examples_on: where the clients' training examples are stored: on the `"device"`, or on the `"host"`, from which a
        device gets those of each client that trains or is asked; None or `"auto"`: on the device if they fit.
      chunk: rounds that run before control returns to the host; None: about a twentieth of the run.
      callbacks: called between chunks (`engine.callback.Callback`); a true answer ends the run.
      checkpoints: saved between chunks; a run that has some resumes from the newest, with bit-identical results.
      memory: bytes that a device may use; None: all it has.
      debug: run without compilation, one client at a time; errors name the round and the stage.

    Raises:
      ValueError: a field is invalid, such as a chunk of less than one round.

    >>> Execution(layout="scan", chunk=10).chunk
    10
    """

    layout: Layout | str | None = None
    mesh: tuple[int, int] | str | None = None
    chunk: int | None = None
    examples_on: str | None = None
    callbacks: Sequence[AnyCallback] = ()
    checkpoints: Checkpoints | None = None
    memory: int | None = None
    debug: bool = False

    def __post_init__(self):
        """Raises `ValueError` if a field is invalid."""
        for name in ("chunk", "memory", "debug"):
            object.__setattr__(self, name, to_plain(getattr(self, name)))
        if isinstance(self.mesh, list | tuple):
            object.__setattr__(self, "mesh", tuple(map(to_plain, self.mesh)))
        if self.chunk is not None and (not is_whole(self.chunk) or self.chunk < 1):
            raise ValueError(f"chunk is {self.chunk!r}; it must be at least 1 round, or None")
        if self.examples_on is not None:
            check_name("examples_on", self.examples_on, PLACES)
        if self.memory is not None and (not is_real(self.memory) or not self.memory > 0):
            raise ValueError(f"memory is {self.memory!r}; it must be a number of bytes above 0, or None")
        if not isinstance(self.debug, bool):
            raise ValueError(f"debug is {self.debug!r}; it must be True or False")
        if not isinstance(self.layout, Layout | str | None):
            raise ValueError(f"layout is {show(self.layout)}; it must be 'auto', 'vmap', 'scan' or a Layout")
        if not (self.mesh is None or self.mesh == "auto" or is_mesh(self.mesh)):
            raise ValueError(
                f"mesh is {show(self.mesh)}; it must be two whole numbers, among how many devices seeds and clients "
                "are divided, 'auto' or None"
            )
        if not isinstance(self.checkpoints, Checkpoints | None):
            raise ValueError(
                f"checkpoints is {show(self.checkpoints)}; it must be Checkpoints(folder), from "
                "fedjax_sel.engine.checkpoint"
            )
        check_callbacks(self.callbacks)


def is_mesh(value: object) -> bool:
    """Returns whether a value is a pair of whole numbers, each at least 1."""
    return isinstance(value, tuple | list) and len(value) == 2 and all(is_whole(n) and n > 0 for n in value)
