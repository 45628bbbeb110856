"""How long a run takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from fedjax_sel.callbacks._ops import locate
from fedjax_sel.engine.history import History
from fedjax_sel.runs.files import write_atomic

__all__ = ["Stopwatch"]

FILE = "stopwatch.csv"


@dataclass
class Stopwatch:
    """Writes `stopwatch.csv`, one line per chunk: last round, seconds since the start, rounds per second in the chunk.

    The first chunk's time includes compilation. A resumed run keeps the earlier lines and continues from the seconds
    spent until its checkpoint; the time in between does not count.

    Attributes:
      folder: where it is written, over an earlier one; None: in the working directory.

    >>> import tempfile
    >>> import numpy as np
    >>> history = History((0,), {"accuracy": np.ones((1, 6))}, np.zeros((1, 6, 1), int), 5, {"seconds": 2.0})
    >>> watch = Stopwatch(Path(tempfile.mkdtemp()))
    >>> watch.after_central_iteration(history)
    >>> print((watch.folder / "stopwatch.csv").read_text(), end="")
    round,seconds,rounds_per_second
    6,2.0,3.0
    """

    folder: str | Path | None = None
    _lines: list[tuple[int, float, float]] = field(default_factory=list, init=False, repr=False)
    _last: tuple[int, float] = field(default=(0, 0.0), init=False, repr=False)

    def on_train_begin(self, history: History) -> None:
        """Reads the lines from before the checkpoint."""
        file = locate(self.folder) / FILE
        self._last = history.rounds, history.about.get("seconds", 0.0)
        before = pd.read_csv(file) if history.rounds and file.exists() else pd.DataFrame({"round": []})
        self._lines = list(before[before["round"] <= history.rounds].itertuples(index=False, name=None))

    def after_central_iteration(self, history: History) -> None:
        """Writes a line if rounds were run since the last one."""
        (rounds, seconds), now = self._last, history.about.get("seconds", 0.0)
        if history.rounds == rounds:
            return
        self._lines.append((history.rounds, now, (history.rounds - rounds) / max(now - seconds, 1e-9)))
        self._last = history.rounds, now
        table = pd.DataFrame(self._lines, columns=["round", "seconds", "rounds_per_second"])
        with write_atomic(locate(self.folder) / FILE) as new:
            table.to_csv(new, index=False)
