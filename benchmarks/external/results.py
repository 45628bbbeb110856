"""The results of finished runs, as JSON, and their comparison with the published numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.external.settings import MOST_SEEDS, MUS, PUBLISHED_SEEDS, ROUNDS, STAGES, Cell, Published, configure
from fedjax_sel.runs import layout

LEVEL = 0.95
POINT = 1.0
"""Where an interval that holds 0 has to lie, on both sides, so that two numbers agree; in per cent."""


@dataclass(frozen=True)
class Measured:
    """The results of the seeds of a cell.

    Attributes:
      best: best test accuracy over rounds, for each seed, in per cent.
      mu: FedProx's `μ`; the best if several were run.
      tried: number of values of `μ` that were run.
    """

    best: tuple[float, ...]
    mu: float | None = None
    tried: int = 1

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.best))

    @property
    def std(self) -> float:
        """The deviation over seeds, with `n - 1`; NaN for one seed."""
        return float(np.std(self.best, ddof=1)) if len(self.best) > 1 else math.nan

    def interval(self) -> tuple[float, float]:
        """Returns the 95 % interval of the mean, by Student's t; NaN for one seed.

        >>> Measured((1.0, 2.0, 3.0)).interval()
        (-0.484..., 4.484...)
        """
        n = len(self.best)
        if n < 2:
            return math.nan, math.nan
        reach = float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) * self.std / math.sqrt(n)
        return self.mean - reach, self.mean + reach


def compare(ours: Measured, theirs: Published) -> tuple[float, float, float]:
    """Returns our mean minus theirs, and its 95 % interval.

    With several seeds it is Welch's. One seed is compared with what another run of theirs would give: the prediction
    interval of Student's t, in which our deviation is taken to be theirs.

    >>> compare(Measured((88.0, 89.0, 90.0)), Published(89.0, 1.0))
    (0.0, -2.266..., 2.266...)
    >>> compare(Measured((88.0,)), Published(89.0, 1.0))
    (-1.0, -5.968..., 3.968...)
    """
    away, n = ours.mean - theirs.mean, len(ours.best)
    parts = (ours.std if n > 1 else theirs.std) ** 2 / n, theirs.std**2 / PUBLISHED_SEEDS
    if sum(parts) == 0:
        return away, away, away
    freedom = parts[1] ** 2 / (PUBLISHED_SEEDS - 1) + (parts[0] ** 2 / (n - 1) if n > 1 else 0.0)
    degrees = sum(parts) ** 2 / freedom if n > 1 else PUBLISHED_SEEDS - 1
    reach = float(stats.t.ppf((1 + LEVEL) / 2, degrees)) * math.sqrt(sum(parts))
    return away, away - reach, away + reach


def judge(away: float, low: float, high: float) -> str:
    """Returns the verdict of a difference with its interval, in words.

    An interval that holds 0 and reaches beyond a point decides nothing.

    >>> judge(0.1, -0.2, 0.4), judge(0.1, -1.2, 1.4), judge(0.5, 0.1, 0.9), judge(-1.0, -2.0, -0.1)
    ('agree', 'undecided', 'ours above', 'ours below')
    """
    if low <= 0 <= high:
        return "agree" if low >= -POINT and high <= POINT else "undecided"
    return "ours above" if away > 0 else "ours below"


def locate(out: Path, cell: Cell, seed: int) -> Path:
    """Returns the folder of a run."""
    return out / "runs" / f"{cell.name}-seed{seed}"


def is_done(place: Path, rounds: int) -> bool:
    """Returns whether a folder has a finished run of at least so many rounds; a trial with fewer goes on."""
    return layout.state(place) == "finished" and layout.read(place)[0].rounds >= rounds


def describe_run(place: Path, cell: Cell, seed: int) -> dict[str, Any]:
    """Returns the entry of a finished run in the JSON."""
    history, _ = layout.read(place)
    summary = json.loads((place / layout.SUMMARY).read_text(encoding="utf-8"))
    curve = 100 * np.asarray(history["accuracy"][0], float)
    diverged = bool(np.isnan(curve).any())
    return {
        "data": cell.data,
        "partition": cell.partition,
        "method": cell.method,
        "mu": cell.mu,
        "seed": seed,
        "rounds": history.rounds,
        "best": None if np.isnan(curve).all() else round(float(np.nanmax(curve)), 4),
        "best_round": None if np.isnan(curve).all() else int(np.nanargmax(curve)) + 1,
        "last": None if diverged else round(float(curve[-1]), 4),
        "curve": [None if np.isnan(value) else round(float(value), 2) for value in curve],
        "diverged": diverged,
        "hours": round(summary["seconds"] / 3600, 4),
        "commit": summary["environment"].get("commit"),
        "device": summary["environment"].get("device"),
    }


def collect(out: Path, seeds: Iterable[int] = range(MOST_SEEDS)) -> dict[str, Any]:
    """Returns the JSON of all finished runs in a folder, and the settings that they share."""
    runs = [
        describe_run(place, cell, seed)
        for cells in STAGES.values()
        for cell in cells
        for seed in seeds
        if layout.state(place := locate(out, cell, seed)) == "finished"
    ]
    settings = configure(Cell("mnist", "iid", "fedavg"), 0).to_dict()
    shared = {key: settings[key] for key in ("local_training", "model", "cohort_size", "rounds", "data_seed")}
    return {"benchmark": "niid_bench", "published_seeds": PUBLISHED_SEEDS, "settings": shared, "runs": runs}


def join_runs(new: Mapping[str, Any], known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the runs of both, those of `new` where both have one; not those with other rounds.

    Raises:
      ValueError: the known runs have other settings.
    """
    new = {**new, "runs": [run for run in new["runs"] if run["rounds"] == ROUNDS]}
    if known is None:
        return dict(new)
    if other := [key for key in new["settings"] if known["settings"].get(key) != new["settings"][key]]:
        raise ValueError(
            f"the {len(known['runs'])} known runs have another {' and '.join(other)}; keep them elsewhere first"
        )
    named = {name_run(run): run for run in (*known["runs"], *new["runs"])}
    cells = [cell for cells in STAGES.values() for cell in cells]
    order = {(cell.data, cell.partition, cell.method, cell.mu): i for i, cell in enumerate(cells)}
    return {**new, "runs": [named[key] for key in sorted(named, key=lambda key: (order[key[:4]], key[4]))]}


def name_run(run: Mapping[str, Any]) -> tuple[str, str, str, float | None, int]:
    """Returns what tells a run from others: data, partition, method, `μ` and seed."""
    return run["data"], run["partition"], run["method"], run["mu"], run["seed"]


def summarize(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], Measured]:
    """Returns the results of runs with all rounds, by data, partition and method.

    A seed that diverged before its first evaluation counts with an accuracy of 10 %. For FedProx, the `μ` with the best
    mean is taken, as in the table, among those with the most seeds.
    """
    best: dict[tuple[str, str, str, float | None], list[float]] = {}
    for run in runs:
        if run["rounds"] == ROUNDS:
            key = run["data"], run["partition"], run["method"], run["mu"]
            best.setdefault(key, []).append(10.0 if run["best"] is None else run["best"])
    out: dict[tuple[str, str, str], Measured] = {}
    for data, partition, method in dict.fromkeys(key[:3] for key in best):
        tried = {mu: best[data, partition, method, mu] for mu in (None, *MUS) if (data, partition, method, mu) in best}
        most = max(map(len, tried.values()))
        tried = {mu: found for mu, found in tried.items() if len(found) == most}
        mu = max(tried, key=lambda one: float(np.mean(tried[one])))
        out[data, partition, method] = Measured(tuple(tried[mu]), mu, len(tried))
    return out
