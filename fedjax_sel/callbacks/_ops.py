"""Shared by several callbacks: the metrics of one run, round by round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedjax_sel.engine.history import History


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
