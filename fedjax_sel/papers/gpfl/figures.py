"""The figures of the GPFL report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import figure as mpl

from fedjax_sel.engine.history import History
from fedjax_sel.metrics import coverage, jain, last_mean
from fedjax_sel.papers.gpfl.cells import (
    ALPHAS,
    AS_PUBLISHED,
    CIFAR,
    EXAMPLES,
    FEDCOR,
    GPFL,
    GROWING,
    LAST,
    LITERAL,
    LONG,
    METHODS,
    NETWORK,
    NEVER,
    PARTITIONS,
    POW_D,
    RANDOM,
    RHOS,
    ROBIN,
    SENSITIVE,
    SWEPT,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.numbers import find_data, find_published, list_partitions, measure
from fedjax_sel.papers.paper import Evidence, Figure, Histories, join, need
from fedjax_sel.report.figures import COLOURS, plot_curves

SHOWN = (RANDOM, POW_D, FEDCOR, GPFL, ROBIN)
LOOKS = {
    RANDOM: {"color": "#555555"},
    POW_D: {"color": "#e69f00"},
    FEDCOR: {"color": "#0072b2"},
    GPFL: {"color": "#d55e00"},
    ROBIN: {"color": "#009e73", "linestyle": "--"},
}


def average_end(history: History) -> History:
    """Returns a history whose last accuracy is the mean of the last ten, and the other nine are left out."""
    accuracy = np.array(history["accuracy"])
    end = last_mean(accuracy, LAST)
    accuracy[:, -LAST:] = np.nan
    accuracy[:, -1] = end
    return replace(history, metrics={**history.metrics, "accuracy": accuracy})


def make_figures(scale: str, evidence: Evidence) -> list[Figure]:
    """Returns the source's figures, and further ones."""
    histories, studies = evidence.histories, evidence.studies
    data = find_data(histories)

    def group_panels(settings: str, methods: Any = SHOWN, of: str = data) -> dict[str, dict[str, History]]:
        out = {}
        for partition in PARTITIONS:
            there = {m: histories.get((name_experiment(of, partition, settings), m)) for m in methods}
            if kept := {m: h for m, h in there.items() if h is not None}:
                out[f"{of}, {partition}"] = kept
        return out

    out = []
    if cifar := group_panels("", of=CIFAR):
        out.append(
            Figure(
                "accuracy-cifar",
                "CIFAR-10 with FedCor's settings; the last point is the mean of the last ten, as in the claims.",
                lambda: plot_curves(
                    {title: {m: average_end(h) for m, h in methods.items()} for title, methods in cifar.items()},
                    looks=LOOKS,
                ),
            )
        )
    if studies.get("time_cifar", {}).get("methods"):
        out.append(make_time_figure(studies["time_cifar"], "time-cifar", f" on {CIFAR}", "Fig. 6b"))
    if not list_partitions(histories):  # CIFAR-10 alone
        return out
    if (name_experiment(data, SENSITIVE, LONG), GROWING) in histories:
        out.append(
            Figure(
                "alpha-for-longer",
                f"The same as `alpha`, for 1500 rounds ({SENSITIVE}).",
                lambda: plot_curves(group_by_parameter(histories, data, LONG)),
            )
        )
    return [
        *out,
        Figure(
            "accuracy-fair",
            "Accuracy if all methods have FedCor's settings: median over seeds, with a band from the first to the "
            "ninth decile.",
            lambda: plot_curves(need(group_panels("")), looks=LOOKS),
        ),
        Figure(
            "accuracy-as-published",
            "Accuracy of each method with its own code's settings; GPFL has another network, more examples and "
            "another schedule (Fig. 3).",
            lambda: plot_curves(need(group_panels(AS_PUBLISHED)), looks=LOOKS),
        ),
        Figure(
            "accuracy-theirs",
            "Accuracy of the methods that were run with GPFL's settings.",
            lambda: plot_curves(need(group_panels(THEIRS)), looks=LOOKS),
        ),
        Figure(
            "variants",
            "Accuracy of the other methods with FedCor's settings.",
            lambda: plot_curves(need(group_panels("", [RANDOM, *(m for m in (*METHODS, LITERAL) if m not in SHOWN)]))),
        ),
        Figure(
            "gap",
            f"{SENSITIVE}: from Random with FedCor's settings, which are replaced by GPFL's step by step, to GPFL as "
            "published. Bars are means over seeds of the last 10 rounds, dots are seeds, and crosses are published "
            "numbers.",
            lambda: draw_gap(histories, data),
        ),
        Figure(
            "coverage",
            "Share of the clients that were selected at least once, with FedCor's settings, mean over seeds (Fig. 4). "
            "Dotted lines are the source's 50 and 200 rounds.",
            lambda: draw_coverage(need(group_panels(""))),
        ),
        Figure(
            "counts",
            f"How often each client was selected ({SENSITIVE}, all seeds), with Jain's index (Fig. 5).",
            lambda: draw_counts(histories, data),
        ),
        Figure(
            "alpha",
            f"Accuracy of GPFL with fixed α (left) and with α growing with the round (right) ({SENSITIVE}, {SWEPT}).",
            lambda: plot_curves(group_by_parameter(histories, data)),
        ),
        *join(lambda: [make_time_figure(studies["time"], "time", "", "Fig. 6")]),
        Figure(
            "regret",
            "Cumulative regret, as a share of what uniform cohorts would lose on the same path, mean over seeds. 0 "
            "means that the best cohort was always selected, and 1 is no better than random cohorts.",
            lambda: draw_regrets(studies["regret"]),
        ),
    ]


def make_time_figure(study: Mapping[str, Any], name: str, data: str, source: str) -> Figure:
    """Returns the figure of one timing study."""
    caption = f"Measured and simulated time of {study['rounds']} rounds{data}, relative to Random's ({source})."
    return Figure(name, caption, lambda: draw_times(study))


def draw_gap(histories: Histories, data: str) -> mpl.Figure:
    """Draws bars of the final accuracies of each step from FedCor's settings to GPFL as published."""
    steps = (
        ("Random,\nFedCor's\nsettings", "", RANDOM),
        ("+ GPFL's\nnetwork", NETWORK, RANDOM),
        ("+ all examples", EXAMPLES, RANDOM),
        ("+ schedule,\nweights", THEIRS, RANDOM),
        ("GPFL,\nFedCor's\nsettings", "", GPFL),
        ("GPFL, its\nsettings", THEIRS, GPFL),
        ("GPFL as\npublished", AS_PUBLISHED, GPFL),
    )
    figure, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for i, (_, settings, method) in enumerate(steps):
        value = measure(histories[name_experiment(data, SENSITIVE, settings), method])["accuracy_last"]
        ax.bar(i, value.mean(), color=LOOKS[method]["color"], width=0.7)
        ax.plot(np.full(len(value), i), value, "o", color="black", markersize=3, label="a seed" if i == 0 else None)
        theirs = find_published(data, SENSITIVE, method, "last")
        if theirs is not None and (method, settings) in ((RANDOM, ""), (GPFL, AS_PUBLISHED)):
            label = "published" if i == 0 else None
            ax.plot(i, theirs, "x", color="black", markersize=9, markeredgewidth=2, label=label)
    ax.set_xticks(range(len(steps)), [name for name, _, _ in steps], fontsize=8)
    ax.set_ylabel("accuracy, mean of the last 10 rounds")
    ax.grid(axis="y", alpha=0.25)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)
    return figure


def draw_coverage(panels: Mapping[str, Mapping[str, History]]) -> mpl.Figure:
    """Draws coverage against rounds."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4), sharey=True, layout="constrained")
    ax = None
    for ax, (title, methods) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for method, history in methods.items():
            share = coverage(history.selections, history.num_clients).mean(0)
            ax.plot(np.arange(1, len(share) + 1), share, label=method, **LOOKS[method])
        for mark in (50, 200):
            ax.axvline(mark, color="0.7", linestyle=":", linewidth=1)
        ax.set(title=title, xlabel="round")
        ax.grid(alpha=0.25)
    np.atleast_1d(axes)[0].set_ylabel("share of clients selected at least once")
    assert ax is not None
    figure.legend(*ax.get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=len(SHOWN))
    return figure


def draw_counts(histories: Histories, data: str) -> mpl.Figure:
    """Draws histograms of selection counts."""
    fair, theirs = name_experiment(data, SENSITIVE), name_experiment(data, SENSITIVE, THEIRS)
    cells = {method: histories[fair, method] for method in SHOWN}
    cells |= {f"{method}, GPFL's settings": histories[theirs, method] for method in (GROWING, NEVER)}
    figure, axes = plt.subplots(2, 4, figsize=(12, 5), layout="constrained")
    for ax, (name, history) in zip(axes.flat, cells.items(), strict=False):
        count = history.counts()
        most = max(60 if history.rounds > 60 else 10, int(count.max()))
        ax.hist(
            count.ravel(),
            bins=np.linspace(0, most, 41),
            color=COLOURS[0],
            weights=np.full(count.size, 100 / count.size),
        )
        ax.set_title(f"{name}\nJain {jain(count).mean():.3f}, at most {count.max()}", fontsize=9)
        ax.set_yscale("symlog", linthresh=0.1)
    for ax in list(axes.flat)[len(cells) :]:
        ax.set_axis_off()
    for ax in axes[-1]:
        ax.set_xlabel("times selected")
    for ax in axes[:, 0]:
        ax.set_ylabel("% of the clients of all seeds")
    return figure


def group_by_parameter(histories: Histories, data: str, settings: str = SWEPT) -> dict[str, dict[str, History]]:
    """Returns one panel for fixed α and one for ρ."""
    experiment = name_experiment(data, SENSITIVE, settings)
    return {
        title: {method: histories[experiment, method] for method in methods if (experiment, method) in histories}
        for title, methods in (("α fixed", ALPHAS), ("α = ρ t / T", RHOS))
    }


def draw_times(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws bars of measured and simulated time."""
    methods = study["methods"]
    random = methods[RANDOM]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    place = np.arange(len(methods))
    measured = [np.array(row["measured_seconds"]) / np.array(random["measured_seconds"]) for row in methods.values()]
    axes[0].barh(place, [np.median(ratio) for ratio in measured], color=COLOURS[0])
    for i, ratio in enumerate(measured):
        axes[0].plot(ratio, np.full(len(ratio), i), "o", color="black", markersize=3)
    axes[1].barh(place, [row["seconds"] / random["seconds"] for row in methods.values()], color=COLOURS[2])
    axes[0].set_yticks(place, list(methods), fontsize=8)
    axes[0].invert_yaxis()
    for ax, what in zip(axes, ("measured", "simulated"), strict=True):
        ax.axvline(1, color="0.4", linewidth=1)
        ax.set_xlabel(f"{what} time / Random's time")
        ax.grid(axis="x", alpha=0.25)
    return figure


def draw_regrets(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws cumulative regret against rounds."""
    figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    others = iter(("#56b4e9", "#cc79a7", "#0072b2", "#f0e442"))
    for method, row in study["methods"].items():
        share = row["running_share"]
        (line,) = ax.plot(np.arange(1, len(share) + 1), share, label=method)
        line.set(**(LOOKS.get(method) or {"color": next(others)}))
    ax.axhline(1, color="0.6", linewidth=1, linestyle=":")
    ax.set(xlabel="round", ylabel="cumulative regret / that of random cohorts", ylim=(0, None))
    figure.legend(fontsize=8, loc="outside right upper")
    ax.grid(alpha=0.25)
    return figure
