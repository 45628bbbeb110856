"""Figures of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedjax_sel.config import write_value
from fedjax_sel.report.figures import COLOURS
from fedjax_sel.report.sweeps import combine_seeds

MOST_LINES = 8
"""The most lines in a panel; if there are more combinations of the other axes, their mean is drawn."""


def plot_sweep(table: pd.DataFrame, axes: Sequence[str]) -> dict[str, Figure]:
    """Returns figures by name: accuracy (or loss) against each axis, and a map if there are two axes of numbers."""
    rows = combine_seeds(table, axes)
    out = {name_quality(rows): plot_axes(rows, axes)}
    if len(axes) == 2 and all(pd.api.types.is_numeric_dtype(rows[key]) for key in axes):
        out["map"] = plot_plane(rows, *axes)
    return out


def plot_axes(rows: pd.DataFrame, axes: Sequence[str]) -> Figure:
    """Returns a figure with a panel for each axis, and lines for combinations of the others if they are few."""
    figure, panels = plt.subplots(
        1, len(axes), figsize=(1.2 + 4.4 * len(axes), 4.2), sharey=True, squeeze=False, layout="constrained"
    )
    name = name_quality(rows)
    for ax, axis in zip(panels[0], axes, strict=True):
        values, others = list_values(rows, axis), [key for key in axes if key != axis]
        known = group_lines(rows, axis, others)
        for i, (label, of) in enumerate(known):
            measured: Any = of.groupby(axis, sort=False).mean(numeric_only=True)
            at = measured.reindex(values)
            places = np.arange(len(values)) + 0.06 * (i - (len(known) - 1) / 2)  # side by side
            look: Any = {"color": COLOURS[i], "marker": "o", "markersize": 4, "capsize": 3, "label": label}
            ax.errorbar(places, at[f"final_{name}"], yerr=at[f"final_{name}_std"], **look)
            if f"best_{name}" in at:
                ax.plot(places, at[f"best_{name}"], color=COLOURS[i], linestyle="--", linewidth=1, alpha=0.7)
        ax.set_xlim(-0.5, len(values) - 0.5)
        ax.set_xticks(np.arange(len(values)), [write_value(value) for value in values])
        ax.set(xlabel=axis, ylabel=name if axis == axes[0] else "")
        ax.grid(alpha=0.25)
        if others:
            ax.legend(title=", ".join(others), title_fontsize=8, fontsize=8)
    return figure


def name_quality(rows: pd.DataFrame) -> str:
    """Returns `"accuracy"`, or `"loss"` if runs have no accuracy."""
    return "accuracy" if "final_accuracy" in rows else "loss"


def group_lines(rows: pd.DataFrame, axis: str, others: list[str]) -> list[tuple[str, pd.DataFrame]]:
    """Returns the label and rows of each line: a combination of the other axes, or the mean if there are too many.

    The mean is over the combinations that are known at every value of `axis` at which any is. A mean over whichever did
    not diverge would be over different combinations at different values.
    """
    if not others:
        return [("", rows)]
    groups: Any = rows.groupby(others, sort=False)
    known: list[tuple[str, Any]] = [(", ".join(map(write_value, key)), of) for key, of in groups]
    if len(known) <= MOST_LINES:
        return known
    finite: Any = rows[rows[f"final_{name_quality(rows)}"].notna()]
    shown = set(finite[axis])
    whole = [of for _, of in known if set(of[axis]) & shown <= set(of[axis][of.index.isin(finite.index)])]
    label = "mean of all" if len(whole) == len(known) else f"mean of {len(whole)} of {len(known)}; others diverged"
    return [(label, pd.concat(whole) if whole else rows.iloc[:0])]


def plot_plane(rows: pd.DataFrame, x: str, y: str) -> Figure:
    """Returns a map of the mean final accuracy (or loss) over two axes, with the numbers in its cells."""
    at = rows.pivot(index=y, columns=x, values=f"final_{name_quality(rows)}").loc[
        list_values(rows, y), list_values(rows, x)
    ]
    figure, ax = plt.subplots(figsize=(2.5 + 0.9 * at.shape[1], 1.6 + 0.6 * at.shape[0]), layout="constrained")
    image = ax.imshow(at, aspect="auto", cmap="viridis", origin="lower")
    middle = (np.nanmin(at) + np.nanmax(at)) / 2 if at.notna().any(axis=None) else 0.0
    for (i, j), value in np.ndenumerate(at.to_numpy()):
        text = "diverged" if np.isnan(value) else f"{value:.3f}"
        ax.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=8,
            color="black" if value > middle or np.isnan(value) else "white",
        )
    ax.set_xticks(range(at.shape[1]), [write_value(value) for value in at.columns])
    ax.set_yticks(range(at.shape[0]), [write_value(value) for value in at.index])
    ax.set(xlabel=x, ylabel=y)
    figure.colorbar(image, label=f"mean final {name_quality(rows)}")
    return figure


def list_values(rows: pd.DataFrame, axis: str) -> list[Any]:
    """Returns the values of an axis: numbers are sorted, others stay in the order given."""
    values = rows[axis].unique().tolist()
    return sorted(values) if pd.api.types.is_numeric_dtype(rows[axis]) else values
