"""Figures shared by all reports."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, LogLocator, NullFormatter

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import heat
from fedjax_sel.report.curves import list_curves

COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#555555", "#e69f00", "#009e73", "#cc79a7", "#f0e442")
"""Okabe and Ito's colours, which colour-blind readers can distinguish."""


def plot_curves(
    panels: Mapping[str, Mapping[str, History]],
    metric: str = "accuracy",
    *,
    x: str | Sequence[str] = "round",
    xlabel: str | None = None,
    log: bool = False,
    ylim: tuple[float, float] | None = None,
    columns: int | None = None,
    looks: Mapping[str, Mapping[str, Any]] | None = None,
) -> Figure:
    """Returns a figure with a panel for each experiment and a line for each method, named below the panels.

    A line is the median over seeds, and its band extends from the first to the ninth decile. Colours distinguish
    methods; from the ninth on, dashes do, too.

    Args:
      panels: histories by title and method.
      metric: the metric to draw.
      x: as in `History.plot`.
      xlabel: label of the x axis.
      log: whether the x axis is logarithmic.
      ylim: the range of the metric that is shown; None: all.
      columns: panels per row; None: all in one row.
      looks: style of a method's line, as matplotlib's `Line2D.set` takes it, if it is not just the next colour.
    """
    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 3.6 * rows), sharey=True, squeeze=False, layout="constrained"
    )
    names = list(dict.fromkeys(method for methods in panels.values() for method in methods))
    ax, named = axes[0][0], {}
    for place, (ax, (title, methods)) in enumerate(zip(axes.flat, panels.items(), strict=False)):
        for method, history in methods.items():
            lap, number = divmod(names.index(method), len(COLOURS))
            look = {"color": COLOURS[number], "linestyle": DASHES[lap % len(DASHES)], **(looks or {}).get(method, {})}
            ax.set_prop_cycle(color=[look["color"]])
            history.plot(metric, x=x, label=method, ax=ax)
            named[method] = ax.lines[-1]
            ax.lines[-1].set(**look)
        lines = textwrap.fill(title.replace(" %", "\N{NO-BREAK SPACE}%"), 48)  # of small letters; 45 others are as wide
        ax.set_title(lines, fontsize=9 if len(title) > 40 else None)
        ax.grid(alpha=0.25)
        if xlabel:
            ax.set_xlabel(xlabel)
        if ylim:
            ax.set_ylim(*ylim)
        if log:
            scale_by_decades(ax, "{x:g}")
        if place % columns:
            ax.set_ylabel("")
        if place + columns < len(panels):
            ax.set_xlabel("")
    for empty in list(axes.flat)[len(panels) :]:
        empty.set_axis_off()
    figure.legend(
        named.values(), named.keys(), fontsize=8, loc="outside lower center", ncols=min(len(named), columns + 2)
    )
    return figure


def scale_by_decades(ax: Axes, formatter: str | Formatter) -> None:
    """Makes an axis of drawn costs logarithmic, with the numbers 1, 2 and 5 of each decade if there are at most two."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high <= 100 * low else (1,)))
    ax.xaxis.set_major_formatter(formatter)
    ax.xaxis.set_minor_formatter(NullFormatter())


def plot_comparison(runs: Mapping[str, History], metric: str = "accuracy") -> Figure:
    """Returns a figure of a metric against rounds, with a line and its band for each run, and a legend.

    Args:
      runs: the runs, by name in the legend; up to 8 have a colour each, and further ones a different dash.
      metric: what is drawn.
    """
    figure, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for number, (name, history) in enumerate(runs.items()):
        ax.set_prop_cycle(color=[COLOURS[DISTINCT[number % len(DISTINCT)]]])
        history.plot(metric, label=textwrap.fill(name, 52 if len(runs) <= INSIDE else 110), ax=ax)
        ax.lines[-1].set_linestyle(DASHES[number // len(DISTINCT) % len(DASHES)])
    ax.grid(alpha=0.25)
    if len(runs) <= INSIDE:
        ax.legend(fontsize=8, loc="best", framealpha=0.85)
    else:
        figure.legend(fontsize=8, loc="outside lower center", ncols=1)
        figure.set_figheight(4.8 + 0.2 * len(runs))
    return figure


INSIDE = 5
"""The most runs whose legend is inside the axes; for more, it is below them."""

DISTINCT = (0, 2, 5, 4, 6, 3, 1, 7)
"""The order of `COLOURS` in which neighbours differ most."""

DASHES = ("-", "--", ":", "-.")


def plot_run(history: History) -> Iterator[tuple[str, Figure]]:
    """Yields a run's figures by name: its curves, and one of the clients if the run evaluates all of them."""
    for curve in list_curves(history):
        ax: Any = history.plot(x=curve.x)
        ax.set_xlabel(curve.label)
        ax.grid(alpha=0.25)
        yield curve.name(history.headline), ax.figure
    if history.client_rounds:
        yield "clients", plot_clients(history)


def plot_clients(history: History) -> Figure:
    """Returns a small figure of the headline metric on every client's own examples.

    The left panel shows the mean over clients and that over their worst tenth against rounds, as medians over seeds;
    the right one shows all clients of all seeds at the last evaluation.
    """
    of = history.headline
    kept = history.shown
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.6), layout="constrained", width_ratios=(3, 2))
    at = np.asarray(history.client_rounds)
    for i, (what, label) in enumerate((("mean", "mean"), ("worst_decile", "worst tenth"))):
        if f"client_{of}_{what}" not in history.metrics:  # nobody has said which values are the worst
            continue
        values = history[f"client_{of}_{what}"][kept][:, at - 1]
        middle = np.median(values, axis=0)
        alone = "o" if np.isfinite(middle).sum() == 1 else None
        left.plot(at, middle, color=COLOURS[2 * i], label=label, marker=alone)
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
        left.fill_between(at, low, high, color=COLOURS[2 * i], alpha=0.15, linewidth=0)
    left.set(xlabel="round", ylabel=f"client {of}")
    left.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    left.legend(fontsize=8)
    last = history.client_metrics[of][kept][:, -1]
    right.hist(last[np.isfinite(last)], bins=20, color=COLOURS[0])
    right.set(xlabel=f"client {of}, round {at[-1]}", ylabel="clients, all seeds")
    for ax in (left, right):
        ax.grid(alpha=0.25)
    return figure


def plot_heat_maps(panels: Mapping[str, Mapping[str, History]], first: int, first_name: str) -> Figure:
    """Returns a figure of which clients were selected when: a row of panels per experiment, a panel per method.

    Each client is a line of pixels.

    Args:
      panels: histories by title and method.
      first: clients below this number are drawn separately, magnified.
      first_name: name of these clients.
    """
    methods = list(next(iter(panels.values())))
    figure, axes = plt.subplots(
        2 * len(panels),
        len(methods),
        figsize=(2.6 * len(methods), 3.0 * len(panels)),
        sharex=True,
        squeeze=False,
        layout="constrained",
        height_ratios=[1, 2] * len(panels),
    )
    image = None
    for i, (title, histories) in enumerate(panels.items()):
        for j, method in enumerate(methods):
            history = histories[method]
            share = heat(history.selections, history.num_clients)
            for ax, rows, offset in ((axes[2 * i][j], share[:first], 0), (axes[2 * i + 1][j], share[first:], first)):
                extent = (0.5, history.rounds + 0.5, offset + len(rows) - 0.5, offset - 0.5)
                image = ax.imshow(
                    rows, aspect="auto", cmap="magma_r", vmin=0, vmax=1, extent=extent, interpolation="nearest"
                )
            if i == 0:
                axes[0][j].set_title(method, fontsize=9)
            if i == len(panels) - 1:
                axes[2 * i + 1][j].set_xlabel("round")
            if j == 0:
                axes[2 * i][0].set_ylabel(f"{title}\n{first_name}", fontsize=8)
                axes[2 * i + 1][0].set_ylabel("other clients", fontsize=8)
            else:
                axes[2 * i][j].set_yticks([])
                axes[2 * i + 1][j].set_yticks([])
    assert image is not None
    figure.colorbar(image, ax=axes, label="share of seeds that selected the client", shrink=0.5)
    return figure


def plot_intervals(rows: Sequence[tuple[str, float, float, float]], *, groups: Sequence[str], xlabel: str) -> Figure:
    """Returns a figure of means with their intervals, one line per label, and a reference line at 0.

    Args:
      rows: label, mean, low and high of each line.
      groups: the group of each row; each group has a colour.
      xlabel: label of the x axis.
    """
    names, labels = list(dict.fromkeys(groups)), list(dict.fromkeys(row[0] for row in rows))
    figure, ax = plt.subplots(figsize=(7, 0.26 * len(labels) + 1.2), layout="constrained")
    ax.axvline(0.0, color="0.6", linewidth=1)
    for k, (name, colour) in enumerate(zip(names, (COLOURS[0], COLOURS[2], *COLOURS[3:]), strict=False)):
        mine = [row for row, group in zip(rows, groups, strict=True) if group == name]
        place = [labels.index(row[0]) + 0.3 * (k - (len(names) - 1) / 2) for row in mine]
        mean, low, high = np.array([row[1:] for row in mine]).T
        ax.errorbar(mean, place, xerr=[mean - low, high - mean], fmt="o", color=colour, label=name, markersize=4)
    ax.set_yticks(range(len(labels)), labels, fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel(xlabel)
    ax.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(names))
    ax.grid(axis="x", alpha=0.25)
    return figure
