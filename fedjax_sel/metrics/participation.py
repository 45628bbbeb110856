"""Participation: which clients were selected, and how evenly."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def coverage(selections: Int[np.ndarray, "R T m"], clients: int) -> Float[np.ndarray, "R T"]:
    """Returns the share of the clients that were selected at least once up to each round.

    Raises:
      ValueError: a client at or above `clients` was selected.

    >>> coverage(np.array([[[0, 1], [1, 2], [-1, 1]]]), 4)
    array([[0.5 , 0.75, 0.75]])
    """
    selections = np.asarray(selections)
    runs, rounds, _ = selections.shape
    if selections.size and selections.max() >= clients:
        raise ValueError(
            f"client {selections.max()} was selected, but clients is {clients}; it must be N, of all clients"
        )
    first = np.full((runs, clients), rounds)
    run, t, slot = np.nonzero(selections >= 0)
    np.minimum.at(first, (run, selections[run, t, slot]), t)
    new = [np.bincount(at, minlength=rounds + 1)[:rounds] for at in first]
    return np.cumsum(new, axis=1) / clients


def jain(counts: Int[np.ndarray, "R N"]) -> Float[np.ndarray, "R"]:
    """Returns Jain's fairness index of selection counts, `(Σ c)² / (N Σ c²)`: 1 if equal, `1/N` if one has all.

    It is NaN if nobody was selected.

    Source: Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984.

    >>> jain(np.array([[1, 1, 1, 1], [4, 0, 0, 0]]))
    array([1.  , 0.25])
    """
    c = counts.astype(np.float64)
    squares = counts.shape[1] * (c**2).sum(1)
    return np.divide(c.sum(1) ** 2, squares, out=np.full(len(c), np.nan), where=squares > 0)


def members(selections: Int[np.ndarray, "R T m"], group: Int[np.ndarray, "k"]) -> Int[np.ndarray, "R T"]:
    """Returns how many members of each round's cohort belong to `group`.

    >>> members(np.array([[[0, 1], [2, -1]]]), np.array([0, 2]))
    array([[1, 1]])
    """
    return np.isin(selections, group).sum(-1)


def heat(selections: Int[np.ndarray, "R T m"], clients: int, together: int = 1) -> Float[np.ndarray, "k T"]:
    """Returns the share of the seeds in which each client was selected in each round; `k = N` unless grouped.

    Args:
      selections: cohorts; -1: empty slot.
      clients: `N`.
      together: number of consecutive clients per line, which holds the mean of their shares.

    >>> heat(np.array([[[0], [1]], [[1], [1]]]), clients=2)
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """
    runs, rounds, _ = selections.shape
    lines = -(-clients // together)
    out = np.zeros((lines, rounds))
    for run in selections:
        for t, cohort in enumerate(run):  # a client that fills two slots was selected once
            np.add.at(out[:, t], np.unique(cohort[cohort >= 0]) // together, 1)
    size = np.minimum(together, clients - together * np.arange(lines))
    return out / (runs * size[:, None])
