"""The figures of the LEFL report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import figure as mpl

from fedjax_sel.engine.history import History
from fedjax_sel.papers.lefl.cells import (
    AS_PUBLISHED,
    COMBINED,
    EXPERIMENTS,
    FEDAVG,
    FEDNOVA,
    FEDPROX,
    HIGH,
    LEFL,
    LOW,
    METHODS,
    SCAFFOLD,
    TUNED,
    name_experiment,
)
from fedjax_sel.papers.paper import Evidence, Figure, need
from fedjax_sel.report.figures import plot_curves

LOOKS = {
    FEDAVG: {"color": "#555555"},
    FEDPROX: {"color": "#e69f00"},
    SCAFFOLD: {"color": "#009e73"},
    FEDNOVA: {"color": "#0072b2"},
    LEFL: {"color": "#d55e00"},
}


def make_figures(scale: str, evidence: Evidence) -> list[Figure]:
    """Returns the source's figures, with the control."""
    histories, studies = evidence.histories, evidence.studies

    def group_panels(settings: str, methods: Any = METHODS) -> dict[str, dict[str, History]]:
        out = {}
        for name in EXPERIMENTS[scale]:
            there = {m: histories.get((name_experiment(name, settings), m)) for m in methods}
            if kept := {m: h for m, h in there.items() if h is not None}:
                out[name] = kept
        return out

    return [*list_run_figures(group_panels), *list_study_figures(studies)]


def list_run_figures(group_panels: Callable[..., dict[str, dict[str, History]]]) -> list[Figure]:
    """Returns the figures of accuracy under each of the settings and, if they were run, of combinations."""
    combined = group_panels(HIGH, (FEDAVG, LEFL, *COMBINED, *TUNED))
    combined = {name: methods for name, methods in combined.items() if set(COMBINED) <= set(methods)}
    out = [
        Figure(
            "accuracy-as-published",
            "Each method as published: LEFL at learning rate 0.1 with its code's quotas, the others with the text's "
            "settings (Fig. 5). Median over seeds, with a band from the first to the ninth decile.",
            lambda: plot_curves(need(group_panels(AS_PUBLISHED)), looks=LOOKS, log=True),
        ),
        Figure(
            "accuracy-at-its-rate",
            "All methods at LEFL's rate and schedule, with cohorts of the same size.",
            lambda: plot_curves(need(group_panels(HIGH)), looks=LOOKS, log=True),
        ),
        Figure(
            "accuracy-at-their-rate",
            "All methods with the text's settings and cohorts of the same size.",
            lambda: plot_curves(need(group_panels(LOW)), looks=LOOKS, log=True),
        ),
    ]
    caption = "LEFL combined with the other methods, and FedProx with other μ, all at LEFL's rate."
    return [*out, Figure("combined", caption, lambda: plot_curves(combined, log=True))] if combined else out


def list_study_figures(studies: Mapping[str, Any]) -> list[Figure]:
    """Returns the figures of cohorts' labels, distances, divergences and similarity of layers."""

    def find_small() -> dict[str, Any]:
        both = {**studies["ablation"], **studies["clusters"]}
        return {name: row for name, row in both.items() if "heat" in row}

    return [
        Figure(
            "entropy",
            "Relative entropy of the labels of each round's cohort to the labels of all clients, mean over seeds "
            "(Fig. 4). Cohorts are uniform, or stratified by LEFL's clusters (in proportion to their sizes, or with at "
            "least one client of each) or by clusters of the true labels (at least one client of each). Horizontal "
            "lines are means over all rounds.",
            lambda: draw_entropy(studies["clusters"]),
        ),
        Figure(
            "distance",
            "Mean distance in latent space of models of the same cluster, divided by that in random clusters of the "
            "same sizes (Fig. 3, 6). Dots are seeds.",
            lambda: draw_distances({**studies["clusters"], **studies["ablation"]}),
        ),
        Figure(
            "kl",
            "KL divergences of the first seed's clients, sorted by cluster; lines separate clusters.",
            lambda: draw_divergences(find_small()),
        ),
        Figure(
            "cka",
            "CKA of every layer of one client's model with every layer of another's, for the first seed (Fig. 2): "
            "mean over pairs of the same cluster (left), and of different clusters (right).",
            lambda: draw_alikeness(find_small()),
        ),
    ]


def draw_entropy(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws relative entropy against rounds."""
    looks = {
        "entropy_random": ("uniform", "#555555"),
        "entropy_proportional": ("LEFL's clusters, proportional", "#d55e00"),
        "entropy_stratified": ("LEFL's clusters, at least one of each", "#e69f00"),
        "entropy_by_labels": ("clusters of true labels", "#56b4e9"),
    }
    columns = min(4, len(study))
    lines = -(-len(study) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.2 * columns, 3.4 * lines), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(study) :]:
        ax.set_visible(False)
    for ax, (title, row) in zip(axes.flat, study.items(), strict=False):
        for name, (label, colour) in looks.items():
            if name not in row["curves"]:
                continue
            curve = np.array(row["curves"][name])
            ax.plot(np.arange(1, len(curve) + 1), curve, color=colour, linewidth=0.6, alpha=0.6)
            ax.axhline(curve.mean(), color=colour, label=label)
        ax.set(xlabel="round", ylim=(0, None))
        ax.set_title(title, fontsize=9)
        ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel("relative entropy, nats")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=len(looks))
    return figure


def draw_distances(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws bars of relative distances."""
    figure, ax = plt.subplots(figsize=(7, 0.5 * len(study) + 1.2), layout="constrained")
    for i, row in enumerate(study.values()):
        ratio = np.array(row["within"]) / np.array(row["random"])
        ax.barh(i, ratio.mean(), color="#d55e00", height=0.6)
        ax.plot(ratio, np.full(len(ratio), i), "o", color="black", markersize=3)
    ax.set_yticks(range(len(study)), list(study), fontsize=8)
    ax.invert_yaxis()
    ax.axvline(1, color="0.4", linewidth=1)
    ax.set_xlabel("distance within clusters / within random clusters")
    ax.grid(axis="x", alpha=0.25)
    return figure


def draw_divergences(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws divergences, with clients sorted by cluster."""
    figure, axes = plt.subplots(1, len(study), figsize=(4.4 * len(study), 3.8), layout="constrained", squeeze=False)
    for ax, (title, row) in zip(axes[0], study.items(), strict=True):
        cluster = np.array(row["cluster"])
        order = np.argsort(cluster, kind="stable")
        image = ax.imshow(np.array(row["kl"])[np.ix_(order, order)], cmap="viridis")
        for cut in np.flatnonzero(np.diff(cluster[order])) + 0.5:
            ax.axhline(cut, color="white", linewidth=0.8)
            ax.axvline(cut, color="white", linewidth=0.8)
        ax.set_title(title, fontsize=9)
        ax.set(xlabel="client j", ylabel="client i")
        figure.colorbar(image, ax=ax, label="KL(p_i ‖ p_j), nats", shrink=0.8)
    return figure


def draw_alikeness(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws the CKA between all layers."""
    figure, axes = plt.subplots(len(study), 2, figsize=(6.4, 2.9 * len(study)), layout="constrained", squeeze=False)
    image = None
    for line, (title, row) in zip(axes, study.items(), strict=True):
        for ax, value, what in zip(line, np.array(row["heat"]), ("same cluster", "different clusters"), strict=True):
            image = ax.imshow(value, vmin=0, vmax=1, cmap="magma", origin="lower")
            ax.set_xticks(range(0, len(value), max(1, len(value) // 5)))
            ax.set_yticks(range(0, len(value), max(1, len(value) // 5)))
            ax.set_title(f"{title}\n{what}", fontsize=8)
            ax.set(xlabel="layer of one model", ylabel="layer of the other")
    assert image is not None
    figure.colorbar(image, ax=axes, label="CKA", shrink=0.6)
    return figure
