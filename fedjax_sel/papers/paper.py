"""A paper is data and claims: its settings, its published numbers, and its sentences as predicates over our results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.regime import FairRegime


@dataclass(frozen=True)
class Cell:
    """One experiment under one method: a configuration, run for all seeds.

    Attributes:
      experiment: as it is called in tables.
      method: as the paper names it.
      config: as `fedjax_sel.config` reads it; seeds are the paper's where it names none.
      begins: key of a cell before it, with whose final model it begins (of the first seed); None: with none.
      pretrained_accuracy: of the library's model that it begins with instead, on its own data; None: with none.
    """

    experiment: str
    method: str
    config: dict[str, Any]
    begins: tuple[str, str] | None = None
    pretrained_accuracy: float | None = None

    @property
    def slug(self) -> str:
        """Name of the cell's folder."""
        return "--".join("".join(c if c.isalnum() or c in ".=" else "-" for c in part).lower() for part in self.key)

    @property
    def key(self) -> tuple[str, str]:
        """How results find it."""
        return self.experiment, self.method


@dataclass(frozen=True)
class StoredCell(History):
    """A cell of which only the measures are known, not the rounds.

    Attributes:
      stored: measures by name, Float[R].
    """

    stored: Mapping[str, np.ndarray] = field(default_factory=dict)


Histories = Mapping[tuple[str, str], History]
"""Finished cells by (experiment, method)."""

Study = Callable[[str, Sequence[int], Path], dict[str, Any]]
"""Numbers that no run gives (a solver's time, a partition's skew), from a scale, seeds and the folder in which the
cells are finished; what JSON can hold."""


class NotRun(KeyError):
    """A cell or a study that was asked for was not run."""


class Finished(dict):
    """Cells or studies of a reproduction that is not finished: asking for another one raises `NotRun`."""

    def __missing__(self, key: Any) -> Any:
        """Refuses."""
        raise NotRun(key)


Item = TypeVar("Item")


def join(*parts: Callable[[], Iterable[Item]]) -> list[Item]:
    """Returns what all parts return, without the parts that need what was not run.

    >>> there = Finished(time=3)
    >>> join(lambda: [there["time"]], lambda: [there["space"]])
    [3]
    """
    out: list[Item] = []
    for part in parts:
        try:
            out += part()
        except NotRun:
            continue
    return out


Some = TypeVar("Some", bound=Mapping)


def need(there: Some) -> Some:
    """Returns what is there; raises `NotRun` where nothing is."""
    if not there:
        raise NotRun("nothing of this was run")
    return there


@dataclass(frozen=True)
class Evidence:
    """What a paper is judged by.

    Attributes:
      histories: finished cells.
      studies: what the finished studies found, by name, as JSON has it.

    Both are `Finished` where some are not.
    """

    histories: Histories
    studies: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """One number of the reproduction.

    Attributes:
      experiment, method: of which cell.
      metric: what.
      round: after which round (from 1); None: of the whole run.
      per_seed: its value for every seed.
      published: the paper's number, where it gives one.
    """

    experiment: str
    method: str
    metric: str
    round: int | None
    per_seed: tuple[float, ...]
    published: float | None = None

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.per_seed))

    @property
    def std(self) -> float:
        """Over seeds, with `R - 1` in the denominator; 0 for one seed, NaN where a seed has no finite value."""
        if not np.isfinite(self.per_seed).all():
            return float("nan")
        return float(np.std(self.per_seed, ddof=1)) if len(self.per_seed) > 1 else 0.0


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, judged.

    Attributes:
      id: short name.
      text: what is claimed.
      source: where; begins with "ours" where the paper does not claim it.
      verdict: `metrics.verdict`'s reproduced, not reproduced, undecided; once it is settled also "by construction" and
        "not judged at this scale".
      statistic: the numbers it rests on.
      effect: of all its comparisons together: `pooled`, with its interval, and how many are on each side; empty where
        it rests on no comparison over seeds.
      rests_on: the experiments it rests on; empty: on studies, or on the run as a whole.
      fixed: why no run could have come out otherwise, or why the true difference is 0, whatever is selected; "": one
        could.
      reason: why it is not judged, or that it is by construction.
    """

    id: str
    text: str
    source: str
    verdict: str
    statistic: dict[str, Any]
    effect: dict[str, Any] = field(default_factory=dict)
    rests_on: tuple[str, ...] = ()
    fixed: str = ""
    reason: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether the reproduction asks it of itself, and not the paper."""
        return self.source.startswith("ours")


@dataclass(frozen=True)
class Figure:
    """A picture of the report.

    Attributes:
      name: of the file, without ending.
      caption: what to see in it.
      draw: makes the matplotlib figure.
    """

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
      title: above it.
      columns: heads.
      rows: cells, as text.
      note: below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Paper:
    """How a paper is reproduced.

    Attributes:
      name: on the command line.
      title, reference: whose it is.
      seeds: how many at each scale; the keys are the scales, the second one is the default.
      settings: what we run, and what the paper leaves open; Markdown.
      regime: the least that an experiment must have had to be judged by.
      cells: of a scale.
      results, claims, tables, figures: of what was found at a scale.
      studies: by name, what is to be found out besides.
    """

    name: str
    title: str
    reference: str
    seeds: Mapping[str, int]
    settings: str
    regime: FairRegime
    cells: Callable[[str], list[Cell]]
    results: Callable[[str, Evidence], list[Result]]
    claims: Callable[[str, Evidence], list[Claim]]
    tables: Callable[[str, Evidence], list[Table]]
    figures: Callable[[str, Evidence], list[Figure]] = field(default=lambda scale, evidence: [])
    studies: Mapping[str, Study] = field(default_factory=dict)


def locate_cell(out: Path, cell: Cell) -> Path:
    """Returns the folder of a cell's run."""
    return out / "cells" / cell.slug
