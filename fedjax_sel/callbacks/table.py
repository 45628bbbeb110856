"""A table of all metrics, written during the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedjax_sel.callbacks._ops import locate, refuse_sweep
from fedjax_sel.catalog import check_name
from fedjax_sel.engine.history import History
from fedjax_sel.runs.files import write_atomic, write_parquet

__all__ = ["Table"]

FORMATS = ("csv", "parquet")


@dataclass(frozen=True)
class Table:
    """Rewrites `table.csv` or `table.parquet` after every chunk: round (from 1), seed, metric, value.

    The file is complete at all times.

    Attributes:
      format: `"csv"` or `"parquet"`.
      folder: where it is written, over an earlier one; None: in the working directory.

    Raises:
      ValueError: the format is unknown.

    >>> import tempfile
    >>> import numpy as np
    >>> history = History((3,), {"accuracy": np.array([[0.5, 0.75]])}, np.zeros((1, 2, 1), int), 5)
    >>> table = Table(folder=Path(tempfile.mkdtemp()))
    >>> table.after_central_iteration(history)
    >>> print((table.folder / "table.csv").read_text(), end="")
    round,seed,metric,value
    1,3,accuracy,0.5
    2,3,accuracy,0.75
    """

    format: Literal["csv", "parquet"] = "csv"
    folder: str | Path | None = None

    def __post_init__(self):
        check_name("format of table:", self.format, FORMATS)

    def on_train_begin(self, history: History) -> None:
        """Writes the rounds before the checkpoint, since a run may have been stopped before it wrote them."""
        refuse_sweep("table", history)
        if history.rounds:
            self.after_central_iteration(history)

    def after_central_iteration(self, history: History) -> None:
        """Writes all rounds so far."""
        table, path = history.to_pandas(), locate(self.folder) / f"table.{self.format}"
        if self.format == "parquet":
            write_parquet(path, table)
            return
        with write_atomic(path) as new:
            table.to_csv(new, index=False)
