"""The measures of cells, computed once and listed, and the accuracy that counts for seeds that diverged."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import fill_missing
from fedjax_sel.papers.paper import Finished, Histories, Result, StoredCell
from fedjax_sel.pytree import show


def measure_once(measure: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a paper's `measure`, whose last argument is a cell's history, so that it is called once for a history.

    What it returned is known as long as the history exists, and shared: callers must not change it. Of a stored cell
    the measures are known, and only those.
    """
    known: dict[tuple, Any] = {}

    @functools.wraps(measure)
    def remembered(*args: Any) -> Any:
        *others, history = args
        if isinstance(history, StoredCell):
            return Finished(history.stored)
        key = (*others, id(history))  # a history holds arrays and cannot be hashed
        if key not in known:
            known[key] = measure(*args)
            weakref.finalize(history, known.pop, key, None).atexit = False
        return known[key]

    return remembered


def settle(history: History) -> Float[np.ndarray, "R T"]:
    """Returns the accuracy, which from the round in which a seed diverged is that of guessing, `1 / C`."""
    end, round = history.diverged[:, None], np.arange(1, history.rounds + 1)
    return np.where((end > 0) & (round >= end), 1 / history.about["classes"], history["accuracy"])


def fill_diverged(history: History, values: Float[np.ndarray, "R"], worst: float) -> Float[np.ndarray, "R"]:
    """Returns a measure of each seed, which is the worst that it can be for a seed that diverged.

    The accuracy of such a seed is settled and no longer moves, which is not what a claim on steadiness means.
    """
    return np.where(history.diverged > 0, worst, values)


def find_best(history: History) -> Float[np.ndarray, "R"]:
    """Returns the best accuracy of each seed; for a seed that diverged, its last one, not the best before that."""
    best = np.nanmax(history["accuracy"], axis=1)
    return np.where(history.diverged > 0, fill_missing(history["accuracy"])[:, -1], best)


def settle_history(history: History) -> History:
    """Returns a history whose accuracy is settled, so that what a seed reached before it diverged does not count."""
    if not history.diverged.any() or "accuracy" not in history:
        return history
    return replace(history, metrics={**history.metrics, "accuracy": settle(history)})


ALONG = (0.1, 0.2, 0.5, 1.0)
"""Fractions of the rounds after which accuracy is listed."""


def format_mean_std(values: Sequence[float] | np.ndarray, digits: int = 3) -> str:
    """Returns mean ± standard deviation over seeds, which is 0 for one seed.

    >>> format_mean_std([0.25, 0.75])
    '0.500 ± 0.354'
    """
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def to_floats(values: Iterable[Any]) -> tuple[float, ...]:
    """Returns plain numbers, one per seed."""
    return tuple(map(float, values))


def list_results(
    histories: Histories,
    measure: Callable[[str, History], Mapping[str, np.ndarray]],
    find_published: Callable[[str, str, str], float | None] = lambda *_: None,
    along: Sequence[float] = (),
) -> list[Result]:
    """Returns every measure of every cell, beside the published number.

    Args:
      histories: of the cells.
      measure: gives one number per seed for each metric, from an experiment's name and a cell's history.
      find_published: the paper's number for an experiment, a method and a metric; None if it gives none.
      along: fractions of the rounds after which accuracy is listed too.

    Raises:
      ValueError: a measure is not one number per seed.
    """
    out = []
    for (experiment, method), history in histories.items():
        for share in along:
            t = max(1, round(share * history.rounds))
            out.append(Result(experiment, method, "accuracy", t, to_floats(history["accuracy"][:, t - 1])))
        for metric, value in measure(experiment, history).items():
            if np.ndim(value) != 1:
                raise ValueError(f"{metric} of {experiment}, {method}, is {show(value)}; it must be one number a seed")
            published = find_published(experiment, method, metric)
            out.append(Result(experiment, method, metric, None, to_floats(value), published))
    return out
