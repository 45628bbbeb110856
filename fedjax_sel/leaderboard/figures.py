"""Figures of the leaderboard: gains, Pareto fronts, critical differences, performance profiles."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedjax_sel.leaderboard.findings import FEWEST_SEEDS
from fedjax_sel.leaderboard.measures import ACCURACY, COSTS
from fedjax_sel.leaderboard.scales import ALL_ROUNDS, PRIMARY
from fedjax_sel.leaderboard.scores import list_gains, select, take_block
from fedjax_sel.leaderboard.selectors import BASELINE
from fedjax_sel.leaderboard.statistics import (
    Estimate,
    Nemenyi,
    apply_nemenyi,
    bootstrap,
    find_cliques,
    find_front,
    interquartile_means,
    mean_ranks,
    performance_profiles,
)
from fedjax_sel.papers.paper import Figure
from fedjax_sel.report.figures import COLOURS

TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
"""Ticks on cost axes, as multiples of the baseline's cost."""

SHOWN_PROFILES = 6
"""The number of selectors whose profiles have a colour; the others are grey."""


def list_figures(tidy: pd.DataFrame) -> list[Figure]:
    """Returns the figures that the table has the numbers for."""
    block = take_block(tidy, PRIMARY)
    bars = "" if block.values.shape[2] < FEWEST_SEEDS else " Grey bars are 95 % bootstrap intervals."
    out = [
        Figure(
            "gains",
            f"Accuracy minus uniform's at equal {PRIMARY.name}, in percentage points ± half of the 95 % interval. "
            "Bold numbers have an interval that excludes 0; empty cells have no numbers.",
            lambda: draw_gains(tidy),
        ),
        Figure(
            "front",
            "Accuracy after all rounds against the cost of the whole run, both as multiples of uniform's. No other "
            f"selector is both better and cheaper than one that is filled and numbered. The diamond is uniform.{bars}",
            lambda: draw_fronts(tidy),
        ),
        Figure(
            "profiles",
            f"Share of runs whose accuracy at equal {PRIMARY.name} exceeds a given multiple of uniform's mean on the "
            "same federation. A curve further up and to the right is better.",
            lambda: draw_profiles(tidy),
        ),
    ]
    if len(block.selectors) > 2 and len(block.federations) > 1:
        text = (
            "Mean rank over federations; a bar joins selectors whose ranks differ by less than Nemenyi's critical "
            "difference at 5 %."
        )
        out.append(Figure("critical", text, lambda: draw_critical(tidy)))
    return out


def draw_gains(tidy: pd.DataFrame) -> Drawing:
    """Returns the heat map of gains over the baseline, selectors by federations, best selector first."""
    gains = list_gains(tidy, PRIMARY)
    federations = list(dict.fromkeys(tidy.loc[tidy["measure"] == ACCURACY, "federation"]))
    overall = {name: np.mean([d.mean for (one, _), d in gains.items() if one == name]) for name, _ in gains}
    names = sorted(overall, key=lambda name: -overall[name])
    mean = np.full((len(names), len(federations)), np.nan)
    figure, ax = plt.subplots(
        figsize=(max(6.0, 0.82 * len(federations) + 2.8), max(3.2, 0.29 * len(names) + 1.9)), layout="constrained"
    )
    for (name, federation), d in gains.items():
        i, j = names.index(name), federations.index(federation)
        mean[i, j] = 100 * d.mean
    bound = max(1.0, float(np.nanquantile(np.abs(mean), 0.95))) if np.isfinite(mean).any() else 1.0
    scale = SymLogNorm(1.0, vmin=-bound, vmax=bound)  # keeps gains visible beside large losses
    image = ax.imshow(np.ma.masked_invalid(mean), cmap="PuOr", norm=scale, aspect="auto", alpha=0.75)
    for (name, federation), d in gains.items():
        i, j = names.index(name), federations.index(federation)
        half = 100 * (d.high - d.low) / 2
        text = f"{100 * d.mean:+.1f} ± {half:.1f}" if np.isfinite(half) else f"{100 * d.mean:+.1f}"
        weight = "bold" if d.low > 0 or d.high < 0 else "normal"
        colour = "white" if abs(float(scale(mean[i, j])) - 0.5) > 0.4 else "black"
        ax.text(j, i, text, ha="center", va="center", fontsize=6.5, color=colour, weight=weight)
    ax.set_xticks(range(len(federations)), federations, rotation=40, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.tick_params(length=0)
    figure.colorbar(image, ax=ax, label="percentage points above uniform", shrink=0.6, extend="both", format="%g")
    return figure


def draw_fronts(tidy: pd.DataFrame) -> Drawing:
    """Returns a figure of accuracy against each cost, one point per selector, with the Pareto front."""
    kinds = [kind for kind in COSTS if not select(tidy, f"{kind} of the run").empty]
    figure, axes = plt.subplots(2, 2, figsize=(12.5, 8.4), squeeze=False, layout="constrained", sharey=True)
    block = take_block(tidy, ALL_ROUNDS)
    value = bootstrap(lambda values: interquartile_means(block.over_baseline(values)), block.values, draws=500)
    fronts = []
    for ax, kind in zip(axes.flat, kinds, strict=False):
        wide = select(tidy, f"{kind} of the run").mean(axis=1).unstack("federation")[list(block.federations)]
        cost = (wide.loc[list(block.selectors)] / wide.loc[BASELINE]).mean(axis=1).to_numpy()
        fronts.append((ax, *draw_front(ax, block.selectors, value, cost, block.values.shape[2])))
        ax.set_xlabel(f"{kind if kind != 'flops' else 'FLOPs'}, times uniform's")
    for ax in axes.flat[len(kinds) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy over uniform's")
    figure.draw_without_rendering()
    for front in fronts:
        number_points(*front)
    return figure


def draw_front(
    ax: Axes, names: Sequence[str], value: Estimate, cost: np.ndarray, seeds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws one panel: points, the front in colour, its names beside, and the baseline as a diamond.

    The points have bootstrap intervals if there are enough seeds for them.

    Returns the points, and which of them are the front from the cheapest on, to be numbered at the panels' final sizes.
    """
    front, here = find_front(value.point, cost), list(names).index(BASELINE)
    if seeds >= FEWEST_SEEDS:
        error = np.maximum(np.stack([value.point - value.low, value.high - value.point]), 0)
        ax.errorbar(cost, value.point, yerr=error, fmt="none", ecolor="0.85", linewidth=1, zorder=1)
    ax.scatter(cost[~front], value.point[~front], s=22, facecolors="white", edgecolors="0.45", zorder=2)
    ax.scatter(cost[front], value.point[front], s=30, color=COLOURS[2], zorder=3)
    ax.scatter(cost[here], value.point[here], s=34, marker="D", color="black", zorder=4)
    order = np.flatnonzero(front)[np.argsort(cost[front])]
    ax.step(cost[order], value.point[order], where="post", color=COLOURS[2], linewidth=1)
    listed = [f"{number} {names[i]}" for number, i in enumerate(order, start=1)]
    ax.text(1.02, 1.0, "\n".join([*listed, "◆ uniform"]), transform=ax.transAxes, va="top", fontsize=8)
    ax.set_xscale("log")
    ax.set_xlim(cost.min() / 1.15, cost.max() * 1.15)
    low, high = ax.get_xlim()
    ax.set_xticks([tick for tick in TICKS if low <= tick <= high])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(alpha=0.25)
    return np.stack([cost, value.point], axis=1), order


def number_points(ax: Axes, points: np.ndarray, order: np.ndarray) -> None:
    """Numbers some of a panel's points from 1, where no point and no other number is; a line leads to a distant one.

    Args:
      ax: the panel.
      points: x and y of each.
      order: of those to be numbered.
    """
    shown = ax.transData.transform(points) * 72 / ax.figure.dpi  # in units of 1/72 inch
    taken = list(shown)
    for number, i in enumerate(order, start=1):
        spots = [reach * spot for reach in (9.0, 16.0, 24.0, 32.0) for spot in AROUND]
        room = np.array([min(np.linalg.norm(shown[i] + spot - other) for other in taken) for spot in spots])
        spot = spots[int(np.argmax(np.minimum(room, 8.0)))]  # the first with room, else that with most
        taken.append(shown[i] + spot)
        line = {"arrowstyle": "-", "color": COLOURS[2], "linewidth": 0.5, "shrinkA": 4}
        ax.annotate(
            str(number),
            (points[i, 0], points[i, 1]),
            (spot[0], spot[1]),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=COLOURS[2],
            zorder=5,
            arrowprops=line if np.linalg.norm(spot) > 10 else None,
        )


AROUND = [
    np.array([np.cos(angle), np.sin(angle)]) for angle in np.pi * np.array([0.5, 1.5, 0.75, 0.25, 1, 0, 1.25, 1.75])
]
"""Directions in which the number of a point may stand, the first ones first."""


def draw_critical(tidy: pd.DataFrame) -> Drawing:
    """Returns the critical-difference diagram: selectors on an axis of ranks, with bars over those not told apart."""
    block = take_block(tidy, PRIMARY)
    found = apply_nemenyi(block.values)
    order = np.argsort(found.ranks, kind="stable")
    ranks, names = found.ranks[order], [block.selectors[i] for i in order]
    cliques, count = find_cliques(ranks, found.difference), len(names)
    half, width = -(-count // 2), count - 1.0
    figure, ax = plt.subplots(figsize=(9, max(2.8, 0.24 * half + 0.16 * len(cliques) + 1.7)), layout="constrained")
    top = -1.7 - 0.55 * len(cliques)
    for place, (rank, name) in enumerate(zip(ranks, names, strict=True)):
        near = place < half
        y = top - (place if near else count - 1 - place)
        x = 1 - 0.03 * width if near else count + 0.03 * width
        text = f"{name} {rank:.1f} " if near else f" {rank:.1f} {name}"
        ax.plot([rank, rank, x], [0, y, y], color=COLOURS[2] if name == BASELINE else "0.4", linewidth=0.8)
        ax.text(x, y, text, ha="right" if near else "left", va="center", fontsize=8)
    for i, (a, b) in enumerate(cliques):
        ends = [ranks[a] - 0.008 * width, ranks[b] + 0.008 * width]
        ax.plot(ends, [-0.55 - 0.55 * i] * 2, color="black", linewidth=3, solid_capstyle="butt")
    draw_axis(ax, count, found)
    ax.set_ylim(top - half, 4.0)
    ax.set_xlim(1 - 0.32 * width, count + 0.32 * width)
    ax.axis("off")
    return figure


def draw_axis(ax: Axes, count: int, found: Nemenyi) -> None:
    """Draws the axis of ranks, and above it the length of the critical difference."""
    ax.plot([1, count], [0, 0], color="black", linewidth=1)
    for tick in np.unique(np.linspace(1, count, min(count, 10)).round().astype(int)):
        ax.plot([tick, tick], [0, 0.3], color="black", linewidth=1)
        ax.text(tick, 0.45, str(tick), ha="center", va="bottom", fontsize=8)
    span = min(found.difference, count - 1)
    ax.plot([1, 1 + span], [2.3, 2.3], color="black", linewidth=2)
    cut = "" if span == found.difference else ", wider than the axis"
    text = f"critical difference {found.difference:.2f}{cut}; Friedman p = {found.p:.2g}"
    ax.text(1, 2.5, text, va="bottom", fontsize=8)


def draw_profiles(tidy: pd.DataFrame) -> Drawing:
    """Returns the performance profiles: the best by mean rank in colour, the baseline in black, the others in grey."""
    block = take_block(tidy, PRIMARY)
    score = block.relative
    low, high = np.quantile(score, [0.02, 0.98])
    thresholds = np.linspace(low, max(high, low + 1e-6), 200)
    profiles = performance_profiles(score, thresholds)
    figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
    best = [i for i in np.argsort(mean_ranks(block.values)) if block.selectors[i] != BASELINE]
    for i in best[SHOWN_PROFILES:]:
        ax.plot(thresholds, profiles[i], color="0.85", linewidth=0.8, zorder=1)
    for colour, i in zip(COLOURS, best[:SHOWN_PROFILES], strict=False):
        ax.plot(thresholds, profiles[i], color=colour, label=block.selectors[i], zorder=2)
    uniform = profiles[block.selectors.index(BASELINE)]
    ax.plot(thresholds, uniform, color="black", linestyle="--", label=BASELINE, zorder=3)
    ax.set(xlabel="accuracy over uniform's mean", ylabel="share of runs above", ylim=(0, 1.01))
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.grid(alpha=0.25)
    return figure
