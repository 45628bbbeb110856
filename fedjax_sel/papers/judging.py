"""What every paper writes: results of cells, verdicts on differences, and numbers as a claim or a table shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import Difference, all_of, difference
from fedjax_sel.papers.paper import Histories, Result

Differences = Mapping[str, Difference]
"""Paired differences of two methods, by experiment."""

ALONG = (0.1, 0.2, 0.5, 1.0)
"""Shares of the rounds after which accuracy is listed along the way."""


def judge_all(differences: Differences, judge: Callable[[Difference], str]) -> str:
    """Returns one verdict on a claim about several experiments; undecided where there are none.

    Args:
      differences: of each experiment.
      judge: verdict on one of them, as `Difference.larger`.
    """
    return all_of([judge(d) for d in differences.values()])


def judge_larger(differences: Differences, negligible: float = 0.0) -> str:
    """Returns the verdict on "the first is larger in all of them"; see `Difference.larger`."""
    return judge_all(differences, lambda d: d.larger(negligible))


def describe_difference(d: Difference) -> dict[str, float]:
    """Returns a difference as a claim's statistic."""
    return {**vars(d)}


def describe_differences(differences: Differences) -> dict[str, Any]:
    """Returns the differences of all experiments as a claim's statistic."""
    return {name: describe_difference(d) for name, d in differences.items()}


def compare_with(values: np.ndarray, bound: float) -> Difference:
    """Returns the difference of each seed's value from one number."""
    return difference(values, np.full(len(values), bound))


def format_mean_std(values: Sequence[float] | np.ndarray, digits: int = 3) -> str:
    """Returns mean ± standard deviation over seeds, 0 for one seed.

    >>> format_mean_std([0.25, 0.75])
    '0.500 ± 0.354'
    """
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def to_floats(values: Iterable[Any]) -> tuple[float, ...]:
    """Returns plain numbers, one a seed."""
    return tuple(map(float, values))


def list_results(
    histories: Histories,
    measure: Callable[[str, History], Mapping[str, np.ndarray]],
    find_published: Callable[[str, str, str], float | None] = lambda *_: None,
    along: Sequence[float] = (),
) -> list[Result]:
    """Returns every measure of every cell, beside what is published.

    Args:
      histories: of the cells.
      measure: numbers a seed by metric, of an experiment's name and a cell's history.
      find_published: the paper's number for an experiment, a method and a metric; None where it gives none.
      along: shares of the rounds after which accuracy is listed too.
    """
    out = []
    for (experiment, method), history in histories.items():
        for share in along:
            t = max(1, round(share * history.rounds))
            out.append(Result(experiment, method, "accuracy", t, to_floats(history["accuracy"][:, t - 1])))
        for metric, value in measure(experiment, history).items():
            published = find_published(experiment, method, metric)
            out.append(Result(experiment, method, metric, None, to_floats(value), published))
    return out
