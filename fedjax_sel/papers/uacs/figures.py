"""The figures of the UACS-FL report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import figure as mpl

from fedjax_sel.data.uacs import Shape, curve, uacs
from fedjax_sel.engine.history import History
from fedjax_sel.papers.paper import Evidence, Figure, Histories, join
from fedjax_sel.papers.uacs.cells import (
    BOUNDARY,
    COMPARED,
    ENTROPY,
    EVERYBODY,
    GRADIENT,
    LINES,
    METHODS,
    RANDOM,
    SETTINGS,
    VARIATIONS,
    name_experiment,
)
from fedjax_sel.papers.uacs.geometry import measure_best_line
from fedjax_sel.papers.uacs.numbers import compare
from fedjax_sel.report.figures import plot_curves, plot_heat_maps, plot_intervals

Panels = Mapping[str, Mapping[str, History]]

SHOWN = (0.84, 1.0)
"""Accuracies drawn: all methods reach the lower end within a few rounds."""


def make_figures(scale: str, evidence: Evidence) -> list[Figure]:
    """Returns figures as in the paper, and beyond it."""
    histories = evidence.histories

    def group_panels(methods: Sequence[str], variation: str = "") -> dict[str, dict[str, History]]:
        experiments = {title: name_experiment(setting, variation) for setting, title in SETTINGS.items()}
        return {title: {method: histories[name, method] for method in methods} for title, name in experiments.items()}

    out = join(lambda: list_shared_figures(group_panels([*METHODS, EVERYBODY] if scale == "full" else [*METHODS])))
    if scale != "full":
        return out
    linear = Figure(
        "accuracy-linear",
        "Test accuracy of logistic regression against rounds, by the amplitude of the boundary. Dashed lines are the "
        "accuracy of the best straight line.",
        lambda: draw_lines({name: group_panels(COMPARED, name) for name in LINES}),
    )
    return [*out, linear, *join(lambda: [make_sensitivity_figure(histories)])]


def list_shared_figures(panels: Panels) -> list[Figure]:
    """Returns what every scale shows."""
    chosen = {title: {m: one for m, one in methods.items() if m != EVERYBODY} for title, methods in panels.items()}
    return [
        *(
            Figure(
                f"data-{setting}",
                f"{title}: examples of all clients and of each boundary client (seed 0); the dotted green line is the "
                "boundary.",
                lambda setting=setting: draw_data(setting, BOUNDARY),
            )
            for setting, title in SETTINGS.items()
        ),
        Figure(
            "accuracy",
            "Test accuracy against rounds, above 0.84: median over seeds, with a band from the first to the ninth "
            "decile.",
            lambda: plot_curves(panels, ylim=SHOWN),
        ),
        Figure(
            "accuracy-against-bytes",
            "Test accuracy against all bytes sent. Entropy and gradient norm send the model to every client in every "
            "round.",
            lambda: plot_curves(panels, x="bytes", xlabel="bytes, down and up, all clients", log=True, ylim=SHOWN),
        ),
        Figure(
            "accuracy-against-flops",
            "Test accuracy against the clients' floating-point operations, including those of selection.",
            lambda: plot_curves(panels, x="flops", xlabel="FLOPs of all clients", log=True, ylim=SHOWN),
        ),
        Figure(
            "selections",
            "Share of the seeds that selected each client in each round.",
            lambda: plot_heat_maps(chosen, BOUNDARY, "boundary"),
        ),
    ]


def draw_data(setting: int, boundary: int) -> mpl.Figure:
    """Returns the examples of one seed, by class; the curve dotted."""
    drawn = uacs(setting, 0, boundary=boundary)
    assert drawn.owner is not None
    columns = -(-boundary // 2)
    figure = plt.figure(figsize=(3.6 + 1.9 * columns, 3.9), layout="constrained")
    grid = figure.add_gridspec(2, 2 + columns)
    everybody = figure.add_subplot(grid[:, :2])
    axes = [figure.add_subplot(grid[i // columns, 2 + i % columns]) for i in range(boundary)]
    along = np.linspace(-1, 1, 200)
    for ax, mine in [(everybody, drawn.owner >= 0), *((axes[i], drawn.owner == i) for i in range(boundary))]:
        for label, colour in ((0, "tab:blue"), (1, "tab:red")):
            points = drawn.x[mine & (drawn.y == label)]
            ax.scatter(*points.T, s=1.5 if ax is everybody else 5, color=colour, linewidths=0)
        ax.plot(along, curve(along), ":", color="green", linewidth=2)
        ax.set(xlim=(-1.02, 1.02), ylim=(-1.02, 1.02), aspect="equal")
    everybody.set_title("all clients", fontsize=9)
    for i, ax in enumerate(axes):
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"boundary client {i}", fontsize=8)
    return figure


def draw_lines(variations: Mapping[str, Panels]) -> mpl.Figure:
    """Returns the curves of the linear model on all boundaries, each with the accuracy of its best straight line."""
    panels = {
        f"{title}, amplitude {LINES[name]:g}": methods
        for name, titles in variations.items()
        for title, methods in titles.items()
    }
    best = [measure_best_line(Shape(amplitude=LINES[name])) for name, titles in variations.items() for _ in titles]
    figure = plot_curves(panels, columns=len(SETTINGS), log=True, ylim=(0.84, 1.005))
    for ax, accuracy in zip(figure.axes, best, strict=True):
        ax.axhline(accuracy, color="0.6", linestyle="--", linewidth=1, zorder=0)
    return figure


def make_sensitivity_figure(histories: Histories) -> Figure:
    """Returns entropy against others under every variation."""
    rows = [
        (f"{change or 'as above'}, {title}", other, compare(histories, ENTROPY, other, "mean_accuracy", change)[title])
        for change in ("", *VARIATIONS)
        for title in SETTINGS.values()
        for other in (RANDOM, GRADIENT)
    ]
    return Figure(
        "sensitivity",
        "Entropy minus random selection, and minus gradient norm, under every variation: mean accuracy over the "
        "rounds, with the 95 % interval of the mean over seeds.",
        lambda: plot_intervals(
            [(label, d.mean, d.low, d.high) for label, _, d in rows],
            groups=[f"entropy - {other.lower()}" for _, other, _ in rows],
            xlabel="difference in mean accuracy over the rounds",
        ),
    )
