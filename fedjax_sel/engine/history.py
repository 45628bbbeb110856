"""The history of a run: metrics by seed and round, and the selected clients."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedjax_sel.catalog import suggest
from fedjax_sel.types import Variables

FAULT = "fault_"
"""The prefix of metrics that count faults; a history without faults of a kind does not have its metric."""

TOTALS = {
    "bytes": ("bytes_down", "bytes_up", "selection_bytes_down", "selection_bytes_up"),
    "flops": ("client_flops", "selection_flops"),
}
"""Names that a history also accepts as metrics, with the metrics that each one sums."""


@dataclass(frozen=True, eq=False)  # arrays have no one answer to whether they are equal
class History:
    """A finished (or interrupted) run.

    Attributes:
      seeds: of the runs, `R`.
      metrics: by name, Float[R, T]; NaN where a round was not evaluated.
      selections: Int[R, T, m], the cohorts; -1: empty slot.
      num_clients: `N`.
      about: how it was run: device, layout, parameters, FLOPs per example, examples per client, classes, seconds.
      variables: the global models after the last round, a pytree with a leading `R`; None: not kept.
      client_metrics: by name, Float[R, E, N]: metrics of the global model, or of clients' own models, on every client's
        own examples, after the `E` rounds in `client_rounds`; empty if not requested
        (`Experiment.evaluate_clients_every`).
      client_rounds: these rounds, from 1.
      labels: Int[N, C], training examples of each client by class, of the first seed; None: not kept.
      personal: the parts that each client kept for itself, with leading `R`, `N`; `()` if all parts are shared.
    """

    seeds: tuple[int, ...]
    metrics: dict[str, np.ndarray]
    selections: np.ndarray
    num_clients: int
    about: dict = field(default_factory=dict)
    variables: Variables | None = None
    client_metrics: dict[str, np.ndarray] = field(default_factory=dict)
    client_rounds: tuple[int, ...] = ()
    labels: np.ndarray | None = None
    personal: Variables = ()

    def __repr__(self) -> str:
        ended = int((self.diverged > 0).sum())
        lost = f" ({ended} of them diverged)" if ended else ""
        return (
            f"History({len(self.seeds)} seeds{lost}, {self.rounds} rounds, {self.num_clients} clients; "
            f"{', '.join([*self.metrics, *TOTALS])})"
        )

    @property
    def rounds(self) -> int:
        """`T`."""
        return self.selections.shape[1]

    @property
    def headline(self) -> str:
        """The main metric of model quality: accuracy, or loss if the targets are not classes."""
        return "accuracy" if "accuracy" in self.metrics or not self.metrics else "loss"

    @property
    def diverged(self) -> np.ndarray:
        """Int[R]: the round, from 1, in which each seed ended because it was no longer finite; 0: it did not."""
        if "alive" not in self.metrics:
            return np.zeros(len(self.seeds), np.int64)
        ended = ~self.metrics["alive"].astype(bool)
        return np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, 0)

    @property
    def shown(self) -> np.ndarray:
        """Bool[R]: the seeds that figures show, those that did not diverge; all if all did."""
        finite = self.diverged == 0
        return finite if finite.any() else ~finite

    def __getitem__(self, metric: str) -> np.ndarray:
        """Returns one metric, or one of `TOTALS`, Float[R, T]."""
        if metric in TOTALS:
            return np.sum([self[part] for part in TOTALS[metric]], axis=0)
        if metric not in self.metrics:
            known = [*self.metrics, *TOTALS]
            hint = suggest(metric, known) or ";"
            raise KeyError(f"no metric {metric!r} in this history{hint} there are: {', '.join(known)}")
        return self.metrics[metric]

    def __contains__(self, metric: object) -> bool:
        """Returns whether there is such a metric, or one of `TOTALS` of which all parts are there."""
        return all(part in self.metrics for part in TOTALS.get(str(metric), (metric,)))

    def take(self, rows: slice | np.ndarray) -> History:
        """Returns the part of the history that belongs to some seeds.

        Args:
          rows: which seeds, by their positions in `seeds`: a slice, for which the arrays of the result are views, or an
            array of indices.
        """

        def pick(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: leaf[rows], tree)

        return replace(
            self,
            seeds=tuple(np.asarray(self.seeds)[rows].tolist()),
            metrics={name: value[rows] for name, value in self.metrics.items()},
            selections=self.selections[rows],
            variables=pick(self.variables),
            personal=pick(self.personal),
            client_metrics={name: value[rows] for name, value in self.client_metrics.items()},
        )

    __iter__ = None  # `metrics` has names to go through; Python would try history[0]

    def last(self, metric: str) -> np.ndarray:
        """Returns each seed's last value of a metric, Float[R], even if the run ended between two evaluations.

        For a seed that diverged, it is the value of the run's last round: NaN for what evaluations measure.
        """
        values = self[metric]
        missing = np.all(np.isnan(values.reshape(*values.shape[:2], -1)), axis=-1)
        at = values.shape[1] - 1 - np.argmin(missing[:, ::-1], axis=1)
        return values[np.arange(len(values)), np.where(self.diverged == 0, at, -1)]

    def cumulative(self, *metrics: str) -> np.ndarray:
        """Returns the sum of these metrics up to and including each round, Float[R, T]."""
        return np.cumsum(sum(self[metric] for metric in metrics), axis=1, dtype=np.float64)

    def to_pandas(self) -> pd.DataFrame:
        """Returns a long table with columns round (from 1), seed, metric, value; rounds without a value are omitted."""
        runs, rounds = len(self.seeds), self.rounds
        index = {
            "round": np.tile(np.arange(1, rounds + 1), runs),
            "seed": np.repeat(np.asarray(self.seeds), rounds),
        }
        tables = [
            pd.DataFrame({**index, "metric": name, "value": np.asarray(value, np.float64).ravel()})
            for name, value in self.metrics.items()
        ]
        tables = tables or [pd.DataFrame(columns=pd.Index([*index, "metric", "value"]))]
        return pd.concat(tables, ignore_index=True).dropna(subset="value", ignore_index=True)

    def clients_to_pandas(self) -> pd.DataFrame:
        """Returns a table of clients' evaluations with columns round (from 1), seed, client, and one per metric."""
        shape = (len(self.seeds), len(self.client_rounds), self.num_clients)
        seed, round, client = np.meshgrid(
            np.asarray(self.seeds), np.asarray(self.client_rounds, int), np.arange(self.num_clients), indexing="ij"
        )
        index = {"round": round.ravel(), "seed": seed.ravel(), "client": client.ravel()}
        return pd.DataFrame(
            {**index, **{name: np.reshape(value, shape).ravel() for name, value in self.client_metrics.items()}}
        )

    def counts(self) -> np.ndarray:
        """Returns how often each client was selected, Int[R, N]."""
        out = np.zeros((len(self.seeds), self.num_clients), np.int64)
        for row, chosen in zip(out, self.selections.reshape(len(self.seeds), -1), strict=True):
            row += np.bincount(chosen[chosen >= 0], minlength=self.num_clients)
        return out

    def report(self) -> Any:
        """Returns an overview with figures, which notebooks display; `.to_html()` gives a self-contained page."""
        # Imported by name: reports are a layer above, and take a second to import.
        return importlib.import_module("fedjax_sel.report.page").report(self)

    def plot(self, metric: str | None = None, *, x: str | Sequence[str] = "round", label: str | None = None, ax=None):
        """Plots the median, and a band from the first to the ninth decile, over the seeds that did not diverge.

        If all seeds diverged, it plots all of them.

        Args:
          metric: what to plot; None: `headline`.
          x: `"round"`, or one or several metrics whose running sum is the axis (`"bytes"`, `"flops"`; with devices,
            the simulated `"seconds"` and `"joules"`).
          label: label of the line.
          ax: matplotlib axes; None: new ones.

        Returns:
          The axes.
        """
        import matplotlib.pyplot as plt  # imported late: it takes a second, which runs without figures save
        from matplotlib.ticker import MaxNLocator

        metric = self.headline if metric is None else metric
        ax = plt.subplots(layout="constrained")[1] if ax is None else ax
        names = [x] if isinstance(x, str) else list(x)
        kept = self.shown
        across = np.arange(1, self.rounds + 1) if x == "round" else np.median(self.cumulative(*names)[kept], axis=0)
        known = ~np.isnan(self[metric][kept]).all(axis=0)
        values = np.asarray(self[metric], np.float64)[kept][:, known]
        quantile = np.nanquantile if np.isnan(values).any() else np.quantile  # a hundred times as fast
        low, middle, high = quantile(values, [0.1, 0.5, 0.9], axis=0) if values.size else np.empty((3, 0))
        (line,) = ax.plot(across[known], middle, label=label, marker="o" if known.sum() == 1 else None)
        ax.fill_between(across[known], low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        if x == "round" and isinstance(ticks := ax.xaxis.get_major_locator(), MaxNLocator):
            ticks.set_params(integer=True, min_n_ticks=1)
        ax.set(xlabel="round" if x == "round" else " + ".join(names).replace("_", " "), ylabel=metric.replace("_", " "))
        return ax


def join_seeds(histories: Sequence[History], names: Sequence[str] | None = None) -> History:
    """Returns one history of runs that differ in their seeds alone, in the order of their first seeds.

    What a seed draws does not depend on the seeds beside it, but for the order of large clients' examples, so this is
    the history of one run with all these seeds, up to rounding. Final models, and clients' own parts, are kept if all
    have them. `about` is the first run's, with the seconds of all, and every device and layout.

    Args:
      histories: at least one. That their experiments and data are the same is for the caller to know.
      names: what errors call the histories; None: "history 0", "history 1", ...

    Raises:
      ValueError: no history, a seed that is in two of them, or histories that differ in rounds, clients, slots of a
        cohort, metrics or evaluated rounds.
    """
    if not histories:
        raise ValueError("no histories are given; at least one is needed")
    names = names or [f"history {number}" for number in range(len(histories))]
    order = sorted(range(len(histories)), key=lambda place: histories[place].seeds[0])
    parts, names = [histories[place] for place in order], [names[place] for place in order]
    check_joinable(parts, names)
    return concat_seeds(parts, [seed for part in parts for seed in part.seeds])


def concat_seeds(parts: Sequence[History], seeds: Sequence[int]) -> History:
    """Returns the history of these seeds, from the parts of one run that have them; see `join_seeds`.

    Args:
      parts: at least one, and all the same but for their seeds; of a seed that is in two of them, the later counts.
      seeds: which, in their order.
    """
    at = {seed: row for row, seed in enumerate(seed for part in parts for seed in part.seeds)}
    rows = np.array([at[seed] for seed in seeds])

    def concatenate(name: str) -> Any:
        held = [getattr(part, name) for part in parts]
        for part, tree in zip(parts, held, strict=True):
            assert all(len(leaf) == len(part.seeds) for leaf in jax.tree.leaves(tree)), name
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[rows], *held)

    parts = add_faults(parts)
    models = [name for name in ("variables", "personal") if all(jax.tree.leaves(getattr(part, name)) for part in parts)]
    metrics, of_clients = concatenate("metrics"), concatenate("client_metrics")  # in the order of their names
    without_models = replace(parts[0], variables=None, personal=())
    return replace(
        without_models,
        seeds=tuple(seeds),
        selections=concatenate("selections"),
        metrics={name: metrics[name] for name in parts[0].metrics},
        client_metrics={name: of_clients[name] for name in parts[0].client_metrics},
        about=join_about([part.about for part in parts]),
        **{name: concatenate(name) for name in models},
    )


def add_faults(parts: Sequence[History]) -> list[History]:
    """Returns histories that all have the same counts of faults, 0 where one had none."""
    names = dict.fromkeys(name for part in parts for name in part.metrics if name.startswith(FAULT))

    def add(part: History) -> History:
        none = {name: np.zeros((len(part.seeds), part.rounds)) for name in names if name not in part.metrics}
        return replace(part, metrics={**part.metrics, **none})

    return [add(part) for part in parts]


def check_joinable(parts: Sequence[History], names: Sequence[str]) -> None:
    """Raises `ValueError` if histories share a seed, or differ in more than their seeds."""
    owner: dict[int, str] = {}
    for part, name in zip(parts, names, strict=True):
        for seed in part.seeds:
            if seed in owner:
                raise ValueError(f"seed {seed} is in both {owner[seed]} and {name}; leave one of them out")
            owner[seed] = name
        here, there = describe_shape(part), describe_shape(parts[0])
        if shown := "; ".join(
            f"{what}: {there[what]} there, {here[what]} here" for what in here if here[what] != there[what]
        ):
            raise ValueError(f"{name} differs from {names[0]} in more than its seeds ({shown})")


def describe_shape(history: History) -> dict[str, Any]:
    """Returns what histories must have in common to be those of one run's seeds, by its name in messages."""
    return {
        "rounds": history.rounds,
        "clients": history.num_clients,
        "slots of a cohort": history.selections.shape[2],
        "metrics": ", ".join(sorted(name for name in history.metrics if not name.startswith(FAULT))),
        "metrics of clients": ", ".join(sorted(history.client_metrics)),
        "rounds in which clients were evaluated": history.client_rounds,
    }


def join_about(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the `about` of several runs joined into one: the first's, the seconds of all, every device and layout."""
    out = {name: value for name, value in parts[0].items() if name != "resumed_at"}
    for name in ("device", "layout", "examples_on"):
        if name in out:
            out[name] = "; ".join(dict.fromkeys(part[name] for part in parts if name in part))
    for name in ("seconds", "seconds_of_first_chunk"):
        if name in out:
            out[name] = sum(part.get(name, 0.0) for part in parts)
    return out
