"""What several callbacks need: packages that are optional, and the numbers of one run round by round."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from fedjax_sel.engine.history import History


def check_installed(package: str, extra: str) -> None:
    """Raise `ValueError` naming the extra where a package is not there."""
    found = find_spec(package)
    if found is None or found.origin is None:  # a folder of that name is no package
        raise ValueError(
            f"callbacks.{extra} needs the package {package}, which is not installed: pip install 'fedjax-sel[{extra}]'"
        )


def values(history: History, run: int, after: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The rounds after round `after` of one run, from 1, each with its metrics; those without a value are left out.

    Args:
      history: of all runs.
      run: which one, from 0.
      after: the last round that is known already.
    """
    for t in range(after, history.rounds):
        found = {name: float(value[run, t]) for name, value in history.metrics.items()}
        yield t + 1, {name: value for name, value in found.items() if not np.isnan(value)}
