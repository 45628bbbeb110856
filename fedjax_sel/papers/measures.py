"""A cell's measures, which claims, tables and figures ask for hundreds of times, are computed once."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any


def measure_once(measure: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a paper's `measure`, whose last argument is a cell's history, so that it is called once for a history.

    What it returned is known as long as the history exists, and shared: callers must not change it.
    """
    known: dict[tuple, Any] = {}

    @functools.wraps(measure)
    def remembered(*args: Any) -> Any:
        *others, history = args
        key = (*others, id(history))  # a history holds arrays and cannot be hashed
        if key not in known:
            known[key] = measure(*args)
            weakref.finalize(history, known.pop, key, None).atexit = False
        return known[key]

    return remembered
