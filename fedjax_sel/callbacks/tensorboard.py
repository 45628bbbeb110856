"""Curves in TensorBoard."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedjax_sel.callbacks._ops import locate, name_run, refuse_sweep, values
from fedjax_sel.catalog import check_installed
from fedjax_sel.engine.history import History

__all__ = ["TensorBoard"]


@dataclass
class TensorBoard:
    """Writes every metric as a scalar by round (from 1), one TensorBoard run per seed.

    `tensorboard --logdir runs` shows them. The events are in `tensorboard/seed-0`, and so on. A resumed run rewrites
    them from its first round, so that none appears twice.

    Attributes:
      folder: of the run, which contains `tensorboard/`; None: the working directory, with a folder in `tensorboard/`
        for each run that begins.

    Raises:
      ValueError: tensorboardX is not installed.

    >>> import tempfile
    >>> import numpy as np
    >>> history = History((0, 1), {"accuracy": np.ones((2, 4))}, np.zeros((2, 4, 1), int), 5)
    >>> board = TensorBoard(Path(tempfile.mkdtemp()))
    >>> board.on_train_begin(history)
    >>> board.on_train_end(history)
    >>> sorted(path.name for path in (board.folder / "tensorboard").iterdir())
    ['seed-0', 'seed-1']
    """

    folder: str | Path | None = None
    _files: list[Any] = field(default_factory=list, init=False, repr=False)
    _written: int = field(default=0, init=False, repr=False)

    def __post_init__(self):
        check_installed("tensorboardX", "tensorboard", "callbacks.tensorboard")

    def on_train_begin(self, history: History) -> None:
        """Starts one file per seed."""
        refuse_sweep("tensorboard", history)
        from tensorboardX.event_file_writer import EventsWriter

        events = messages()
        self._files, self._written = [], 0
        own = "" if self.folder is not None else name_run(None, "tensorboard/id", history)
        for seed in history.seeds:
            inside = locate(self.folder) / "tensorboard" / own / f"seed-{seed}"
            inside.mkdir(parents=True, exist_ok=True)
            # A TensorBoard that is open meanwhile gets stuck if the file that it reads is gone. At its end it goes on
            # to a name that sorts later (the writer adds whole seconds only), and forgets what it read before.
            for before in inside.iterdir():
                os.truncate(before, 0)
            file = EventsWriter(str(inside.absolute() / f"events.{time.time_ns()}"))
            begin = events.SessionLog(status=events.SessionLog.START)
            file.write_event(events.Event(wall_time=time.time(), step=1, session_log=begin))
            self._files.append(file)
        if history.rounds:
            self.after_central_iteration(history)

    def after_central_iteration(self, history: History) -> None:
        """Writes the new rounds."""
        events, now = messages(), time.time()
        for run, file in enumerate(self._files):
            for number, found in values(history, run, self._written):
                scalars = {"value": [{"tag": name, "simple_value": value} for name, value in found.items()]}
                file.write_event(events.Event(wall_time=now, step=number, summary=scalars))
            file.flush()
        self._written = history.rounds

    def on_train_end(self, history: History) -> None:
        """Closes the files."""
        for file in self._files:
            file.close()
        self._files = []


def messages() -> Any:
    """Returns the module of the protocol buffers in TensorBoard's files, imported when first needed."""
    from tensorboardX.proto import event_pb2

    return event_pb2
