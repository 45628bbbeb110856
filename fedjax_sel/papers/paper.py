"""A paper as data and claims: its settings, its published numbers, and its sentences as predicates over our results."""

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
      experiment: its name in tables.
      method: as the paper names it.
      config: as `fedjax_sel.config` reads it; without seeds, the paper's are used.
      begins: key of an earlier cell whose final model (of its first seed) this cell begins with; None: no such cell.
      pretrained_accuracy: accuracy, on its own data, of the library's model that it begins with instead; None: no such
        model.
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
        """Key of the cell in results."""
        return self.experiment, self.method


class NotRun(KeyError):
    """A requested cell or study was not run."""


@dataclass(frozen=True, eq=False)
class StoredCell(History):
    """A cell of which only the measures are known, not the individual rounds.

    Attributes:
      stored: measures by name, Float[R].
      stored_rounds: `T`.
      may_lack: whether a request for individual rounds or cohorts raises `NotRun`, so that what needs them is left out;
        otherwise it is an error.
    """

    stored: Mapping[str, np.ndarray] = field(default_factory=dict)
    stored_rounds: int = 0
    may_lack: bool = False

    def __getitem__(self, metric: str) -> np.ndarray:
        """Raises `NotRun` or `KeyError`."""
        if self.may_lack:
            raise NotRun(f"{metric}: only the measures over all rounds are known")
        return super().__getitem__(metric)

    def __getattribute__(self, name: str) -> Any:
        """Returns an attribute; raises `NotRun` or `KeyError` for the cohorts."""
        if name == "selections":
            raise (NotRun if self.may_lack else KeyError)("selections: only the measures over all rounds are known")
        return super().__getattribute__(name)

    @property
    def rounds(self) -> int:
        """`T`."""
        return self.stored_rounds


Histories = Mapping[tuple[str, str], History]
"""Finished cells by (experiment, method)."""

Study = Callable[[str, Sequence[int], Path], dict[str, Any]]
"""Computes numbers that no run gives (a solver's time, a partition's skew) from a scale, seeds and the folder of
finished cells; returns what JSON can hold."""


class Finished(dict):
    """Cells or studies of an unfinished reproduction: requesting a missing one raises `NotRun`."""

    def __missing__(self, key: Any) -> Any:
        """Raises `NotRun`."""
        raise NotRun(key)


Item = TypeVar("Item")


def join(*parts: Callable[[], Iterable[Item]]) -> list[Item]:
    """Returns the items of all parts, except parts that need something that was not run.

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
    """Returns its argument; raises `NotRun` if it is empty."""
    if not there:
        raise NotRun("nothing of this was run")
    return there


@dataclass(frozen=True)
class Evidence:
    """The evidence that a paper is judged by.

    Attributes:
      histories: finished cells.
      studies: results of the finished studies, by name, as in JSON.

    Both are `Finished` if any cell or study is missing.
    """

    histories: Histories
    studies: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """One number of the reproduction.

    Attributes:
      experiment, method: of the cell.
      metric: name of the number.
      round: the round (from 1) after which it was measured; None: it is of the whole run.
      per_seed: its value for every seed.
      published: the paper's number, if it gives one.
    """

    experiment: str
    method: str
    metric: str
    round: int | None
    per_seed: tuple[float, ...]
    published: float | None = None

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.per_seed))

    @property
    def std(self) -> float:
        """Standard deviation over seeds, with denominator `R - 1`; 0 for one seed, NaN if a value is not finite."""
        if not np.isfinite(self.per_seed).all():
            return float("nan")
        return float(np.std(self.per_seed, ddof=1)) if len(self.per_seed) > 1 else 0.0


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and its verdict.

    Attributes:
      id: short name.
      text: what is claimed.
      source: where it is claimed; begins with "ours" if the paper does not claim it.
      verdict: reproduced, not reproduced or undecided of `metrics.verdict`; for a settled claim, also "by construction"
        or "not judged at this scale".
      statistic: the numbers it rests on.
      effect: of all its comparisons together: `pooled`, with its interval, and how many are on each side; empty if it
        rests on no comparison over seeds.
      rests_on: the experiments it rests on; empty: on studies, or on the run as a whole.
      fixed: why no run could have come out otherwise, or why the true difference is 0, whatever is selected; "": one
        could.
      lacks: what its study lacks to judge it, or its experiments beyond the regime's requirements; "": nothing.
      reason: why it is not judged, or that it is by construction.
      asked: the question and the difference of every seed, as `judging.record` has them; empty if the verdict rests on
        no comparison over seeds.
    """

    id: str
    text: str
    source: str
    verdict: str
    statistic: dict[str, Any]
    effect: dict[str, Any] = field(default_factory=dict)
    rests_on: tuple[str, ...] = ()
    fixed: str = ""
    lacks: str = ""
    reason: str = ""
    asked: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether the question is ours and not the paper's."""
        return self.source.startswith("ours")


@dataclass(frozen=True)
class Figure:
    """A picture of the report.

    Attributes:
      name: of the file, without extension.
      caption: what it shows.
      draw: makes the matplotlib figure.
    """

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
      title: text above it.
      columns: column headings.
      rows: cells, as text.
      note: text below it.
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
      title, reference: of the paper.
      seeds: number of seeds at each scale; the keys are the scales, and the second one is the default.
      settings: what we run, and what the paper leaves open; Markdown.
      regime: the minimum that an experiment must meet to be judged.
      cells: lists the cells of a scale.
      results, claims, tables, figures: list those of a scale, from the evidence.
      studies: functions that find out further things, by name.
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

    @property
    def default_scale(self) -> str:
        """The scale that is run if none is named."""
        return list(self.seeds)[1]


def locate_reproduction(paper: Paper, scale: str | None) -> Path:
    """Returns the folder of a reproduction for which none is given; None: at the default scale."""
    return Path("runs") / f"{paper.name}-{scale or paper.default_scale}"


def locate_cell(out: Path, cell: Cell) -> Path:
    """Returns the folder of a cell's run."""
    return out / "cells" / cell.slug
