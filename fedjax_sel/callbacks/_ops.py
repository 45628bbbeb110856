"""What several callbacks need: packages that are optional, and the numbers of one run round by round."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from fedjax_sel.engine.history import History


def check_installed(package: str, extra: str) -> None:
    """Raises `ValueError`, which names the extra, where a package is not installed."""
    found = find_spec(package)
    if found is None or found.origin is None:  # a folder of that name is not a package
        raise ValueError(
            f"callbacks.{extra} needs the package {package}, which is not installed: pip install 'fedjax-sel[{extra}]'"
        )


def values(history: History, run: int, after: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields each round (from 1) after round `after` of one run with its metrics; metrics without a value are left out.

    Args:
      history: of all runs.
      run: which one, from 0.
      after: how many rounds are known already.
    """
    for t in range(after, history.rounds):
        found = {name: float(value[run, t]) for name, value in history.metrics.items()}
        yield t + 1, {name: value for name, value in found.items() if not np.isnan(value)}
