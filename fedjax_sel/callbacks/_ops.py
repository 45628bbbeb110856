"""Shared by several callbacks: the metrics of one run, round by round, and the name of a run elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.runs.files import write_text


def values(history: History, run: int, after: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields each round (from 1) after round `after` of one run with its metrics; metrics without a value are left out.

    Args:
      history: of all runs.
      run: which one, from 0.
      after: how many rounds are already known.
    """
    for t in range(after, history.rounds):
        found = {name: float(value[run, t]) for name, value in history.metrics.items()}
        yield t + 1, {name: value for name, value in found.items() if not np.isnan(value)}


def refuse_sweep(name: str, history: History) -> None:
    """Raises `ValueError` for the history of several experiments, in which each seed appears several times."""
    if len(set(history.seeds)) < len(history.seeds):
        raise ValueError(
            f"callbacks.{name} keeps one curve for each seed, but this is the history of several experiments, which "
            "have the same seeds; give it to fs.simulate, one experiment at a time, or use `fedjax-sel sweep`"
        )


def locate(folder: str | Path | None) -> Path:
    """Returns the folder in which a callback writes: the run's; None: the working directory."""
    return Path() if folder is None else Path(folder)


def begins_anew(folder: str | Path | None, history: History) -> bool:
    """Returns whether what a callback finds in its folder is of other runs: it has none, and no round is done yet."""
    return folder is None and not history.rounds


def name_run(folder: str | Path | None, name: str, history: History) -> str:
    """Returns what a run is called outside its folder, eight hexadecimal digits: drawn once, and kept in a file there.

    Neither the name of the folder nor its path would do: both may be those of another run as well. Without a folder,
    a name is drawn whenever a run begins.

    Args:
      folder: of the run; None: none was given.
      name: of the file.
      history: of the run.
    """
    file = locate(folder) / name
    if not file.exists() or begins_anew(folder, history):
        file.parent.mkdir(exist_ok=True)
        write_text(file, uuid.uuid4().hex[:8])
    return file.read_text(encoding="utf-8")
