"""The figures of the FedFT-EDS report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import figure as mpl
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from fedjax_sel.engine.history import History
from fedjax_sel.papers.differences import subtract
from fedjax_sel.papers.fedft_eds.methods import (
    ALL,
    ALPHAS,
    EDS,
    EDS50,
    FEDAVG,
    FEDAVG_RDS,
    FEDPROX,
    FEDPROX_RDS,
    PARTS,
    PRETRAINING,
    RDS,
    RDS50,
    RHOS,
    SCRATCH,
    STRONG,
    name_ablation,
)
from fedjax_sel.papers.fedft_eds.numbers import measure
from fedjax_sel.papers.paper import Evidence, Figure, Histories, StoredCell, need
from fedjax_sel.report.figures import COLOURS, plot_curves, scale_by_decades

LOOKS = {
    SCRATCH: {"color": "#aaaaaa"},
    FEDAVG: {"color": "#555555"},
    FEDAVG_RDS: {"color": "#555555", "linestyle": ":"},
    FEDPROX: {"color": "#e69f00"},
    FEDPROX_RDS: {"color": "#e69f00", "linestyle": ":"},
    RDS: {"color": "#0072b2", "linestyle": ":"},
    EDS: {"color": "#d55e00", "linestyle": ":"},
    ALL: {"color": "#009e73"},
    RDS50: {"color": "#0072b2"},
    EDS50: {"color": "#d55e00"},
}


def make_figures(scale: str, evidence: Evidence) -> list[Figure]:
    """Returns the source's figures, and those of the chosen examples."""
    histories, studies = evidence.histories, evidence.studies
    panels: dict[str, dict[str, History]] = {}
    for (experiment, method), history in histories.items():
        if method in LOOKS and experiment != PRETRAINING and not experiment.startswith("ablation"):
            panels.setdefault(experiment, {})[method] = history
    out = [
        Figure(
            "accuracy",
            "Accuracy against rounds (Fig. 5, 8, 9): median over seeds, with a band from the first to the ninth "
            "decile; experiments of which only measures are kept are left out.",
            lambda: plot_curves(need(keep_rounds(panels)), looks=LOOKS, columns=2),
        ),
        Figure(
            "efficiency",
            "Best accuracy against the simulated training seconds of all clients (Fig. 6, 7): means over seeds, with "
            "bars of one standard deviation.",
            lambda: draw_efficiency(panels),
        ),
        Figure(
            "learning-efficiency",
            "Learning efficiency as in the source's Fig. 6 and 7, in points of best accuracy per 1000 simulated client "
            "seconds (blue), and best accuracy (black): means and standard deviations over seeds.",
            lambda: draw_bars(panels),
        ),
        Figure(
            "cka",
            "Minibatch CKA of the models of all pairs of clients on the test examples, after one round of local "
            "training, for the first seed (Fig. 2, 3). Each level has its own colour scale, from the smallest to the "
            "largest value of two clients.",
            lambda: draw_alikeness(studies["alike"]),
        ),
        Figure(
            "cka-mean",
            "Mean CKA over pairs of clients; thin lines are seeds (Fig. 4).",
            lambda: draw_mean_alikeness(studies["alike"]),
        ),
        Figure(
            "entropy",
            "Entropy of the training examples on the final model of FedFT-ALL, for the first seed, by ρ.",
            lambda: draw_histograms(studies["entropies"]),
        ),
        Figure(
            "chosen",
            "Left: number of rounds in which an example was trained on, as shares of the examples, mean over seeds. "
            "Right: entropy of the labels that a client trains on, mean over clients and seeds.",
            lambda: draw_choices(studies["chosen"]),
        ),
    ]
    if any(experiment.startswith("ablation") for experiment, _ in histories):
        out.append(
            Figure(
                "ablations",
                f"Best accuracy by {' and by '.join(list_ablations(histories)) or 'what was varied'} (Fig. 10): mean "
                "over seeds, with bars of one standard deviation. Below, the difference over the same seeds, with 95 % "
                "intervals.",
                lambda: draw_ablations(histories),
            )
        )
    return out


def keep_rounds(panels: dict[str, dict[str, History]]) -> dict[str, dict[str, History]]:
    """Returns the runs whose individual rounds are known, without panels of fewer than two, which compare nothing."""
    kept = {
        title: {method: history for method, history in methods.items() if not isinstance(history, StoredCell)}
        for title, methods in panels.items()
    }
    return {title: methods for title, methods in kept.items() if len(methods) > 1}


def draw_efficiency(panels: dict[str, dict[str, History]]) -> mpl.Figure:
    """Draws accuracy against seconds."""
    figure, axes = make_panels(panels, width=4.6)
    shown: dict[str, Any] = {}
    for ax, methods in zip(axes, panels.values(), strict=True):
        spent = []
        for method, history in methods.items():
            value, look = measure(history), LOOKS[method]
            spent.append(value["client_seconds"].mean())
            mean, deviation = summarize(value["best_accuracy"])
            marker = "o" if look.get("linestyle") else "s"
            shown[method] = ax.errorbar(spent[-1], mean, deviation, fmt=marker, color=look["color"], capsize=2)
        ax.set(xlabel="client seconds", xlim=(min(spent) / 2, max(spent) * 2), ylabel="best accuracy")
        scale_by_decades(ax, EngFormatter(sep=""))
        ax.grid(alpha=0.25)
    figure.legend(shown.values(), shown.keys(), fontsize=8, loc="outside lower center", ncols=3)
    return figure


def draw_bars(panels: dict[str, dict[str, History]]) -> mpl.Figure:
    """Draws learning efficiency and accuracy of each method."""
    figure, axes = make_panels(panels, width=5.6)
    for ax, methods in zip(axes, panels.values(), strict=True):
        value, places = [measure(history) for history in methods.values()], range(len(methods))
        mean, deviation = zip(*(summarize(1000 * v["efficiency"]) for v in value), strict=True)
        ax.bar(places, mean, yerr=deviation, color=COLOURS[0], alpha=0.6, ecolor=COLOURS[0], capsize=3)
        ax.set(ylabel="points per 1000 client seconds", ylim=(0, None))
        ax.set_xticks(places, list(methods), rotation=45, ha="right", fontsize=7)
        other = ax.twinx()
        mean, deviation = zip(*(summarize(v["best_accuracy"]) for v in value), strict=True)
        other.errorbar(places, mean, deviation, fmt="o", color="black", capsize=3)
        other.set(ylabel="best accuracy", ylim=(0, 1))
    return figure


def make_panels(panels: Mapping[str, Any], width: float) -> tuple[mpl.Figure, list[Axes]]:
    """Returns a figure with a panel for each experiment, two in a row, under its name."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    size = (width * columns, 3.3 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_axis_off()
    used = list(axes.flat)[: len(panels)]
    for ax, title in zip(used, panels, strict=True):
        ax.set_title(title if len(title) < 45 else ",\n".join(title.rsplit(", ", 1)), fontsize=9)
    return figure, used


def summarize(value: np.ndarray) -> tuple[float, float]:
    """Returns the mean and the standard deviation over seeds; 0 for one seed."""
    return float(value.mean()), float(value.std(ddof=1)) if len(value) > 1 else 0.0


def draw_alikeness(study: Any) -> mpl.Figure:
    """Draws heat maps of the CKA between clients, each level on the colour scale of its own values."""
    rows, levels = study["cells"], study["levels"]
    heats = np.array([row["heat"] for row in rows.values()], np.float64)
    apart = heats[..., ~np.eye(heats.shape[-1], dtype=bool)]
    low, high = np.nanmin(apart, axis=(0, 2)), np.nanmax(apart, axis=(0, 2))
    figure, axes = plt.subplots(
        len(rows), len(levels), figsize=(2.4 * len(levels), 2.3 * len(rows)), layout="constrained", squeeze=False
    )
    images = []
    for line, (name, row) in zip(axes, rows.items(), strict=True):
        images = []
        for i, (ax, level, heat) in enumerate(zip(line, levels, np.array(row["heat"], np.float64), strict=True)):
            shown = np.where(np.eye(len(heat), dtype=bool), np.nan, heat)  # the diagonal would set the scale
            images.append(ax.imshow(shown, vmin=low[i], vmax=max(high[i], low[i] + 1e-6), cmap="magma_r"))
            ax.set(xticks=[], yticks=[])
            ax.set_title(level, fontsize=8)
        line[0].set_ylabel(name.replace(", ", "\n"), fontsize=8)
    for column, image in zip(axes.T, images, strict=True):
        figure.colorbar(image, ax=column, label="CKA", shrink=0.6, location="bottom")
    return figure


def draw_mean_alikeness(study: Any) -> mpl.Figure:
    """Draws mean CKA by level."""
    levels = study["levels"]
    figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for i, (name, row) in enumerate(study["cells"].items()):
        value = np.array(row["mean"])
        ax.plot(range(len(levels)), value.mean(0), "o-", color=COLOURS[i], label=name)
        ax.plot(range(len(levels)), value.T, color=COLOURS[i], linewidth=0.5, alpha=0.6)
    ax.set_xticks(range(len(levels)), levels)
    ax.set(ylabel="CKA, mean over pairs of clients")
    figure.legend(fontsize=8, loc="outside right upper")
    ax.grid(alpha=0.25)
    return figure


def draw_histograms(study: Any) -> mpl.Figure:
    """Draws entropies by ρ."""
    figure, axes = plt.subplots(1, len(study["rho"]), figsize=(10, 2.8), sharey=True, layout="constrained")
    for ax, (rho, row) in zip(np.atleast_1d(axes), study["rho"].items(), strict=True):
        count = np.array(row["histogram"])
        edges = np.linspace(0, study["most"], len(count) + 1)
        ax.stairs(np.maximum(count, 0.5), edges, fill=True, color=COLOURS[0], baseline=0.5)
        ax.set(title=f"ρ = {rho}", xlabel="entropy, nats", yscale="log")
    np.atleast_1d(axes)[0].set_ylabel("examples")
    return figure


def draw_choices(study: Any) -> mpl.Figure:
    """Draws how often examples are chosen, and the entropy of their labels."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for i, (method, row) in enumerate(study["methods"].items()):
        share = np.array(row["times"]).mean(0)
        axes[0].bar(np.arange(len(share)) + 0.4 * i - 0.2, share, width=0.4, label=method, color=LOOKS[method]["color"])
        labels = np.array(row["labels"])
        axes[1].plot(np.arange(1, len(labels) + 1), labels, "o-", color=LOOKS[method]["color"], markersize=3)
    axes[0].set(xlabel="rounds in which an example was trained on", ylabel="share of the examples")
    axes[1].set(xlabel="round", ylabel="entropy of chosen labels, nats")
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)
    return figure


def list_ablations(histories: Histories) -> dict[str, list[tuple[str, str]]]:
    """Returns labels and experiments of what was varied in Fig. 10, where at least two runs compare something."""
    varied = {
        "trained part": [(part, name_ablation("trained:", part)) for part in PARTS],
        "α": [(f"{alpha:g}", name_ablation("α =", f"{alpha:g}")) for alpha in ALPHAS],
        "ρ": [(f"{rho:g}", name_ablation("ρ =", f"{rho:g}")) for rho in RHOS],
    }
    return {what: of for what, of in varied.items() if sum((name, "EDS") in histories for _, name in of) > 1}


def draw_ablations(histories: Histories) -> mpl.Figure:
    """Draws Fig. 10, and below it the differences over the same seeds, by which the claims are judged."""
    panels = need(list_ablations(histories))
    figure, axes = plt.subplots(
        2,
        len(panels),
        figsize=(3.9 * len(panels), 5.4),
        sharex="col",
        sharey="row",
        layout="constrained",
        squeeze=False,
    )
    shown: dict[str, Any] = {}
    for (above, below), (what, names) in zip(axes.T, panels.items(), strict=True):
        chance = (name_ablation("α =", f"{STRONG:g}"), "RDS") if what == "ρ" else None
        for way, colour in (("EDS", "#d55e00"), ("RDS", "#0072b2")):
            there = [(i, histories[name, way]) for i, (_, name) in enumerate(names) if (name, way) in histories]
            if there:
                value = [summarize(measure(history)["best_accuracy"]) for _, history in there]
                mean, deviation = zip(*value, strict=True)
                shown[way] = above.errorbar([i for i, _ in there], mean, deviation, fmt="o-", color=colour, capsize=3)
        for i, (_, name) in enumerate(names):
            pair = (name, "EDS"), chance or (name, "RDS")
            if pair[0] in histories and pair[1] in histories:
                d = subtract(*(measure(histories[key])["best_accuracy"] for key in pair))
                ends = [[d.mean - d.low], [d.high - d.mean]]
                below.errorbar([i], [d.mean], ends if np.isfinite(ends).all() else None, fmt="o", color="k", capsize=3)
        below.axhline(0, color="#0072b2", linestyle="--", linewidth=1)
        below.set_xticks(range(len(names)), [label for label, _ in names])
        below.set_xlim(-0.4, len(names) - 0.6)  # room for the labels at both ends, whatever is finished
        below.set_xlabel(what)
        if chance is not None and chance in histories:
            shown["RDS, mean"] = above.axhline(
                measure(histories[chance])["best_accuracy"].mean(), color="#0072b2", ls="--"
            )
        for ax in (above, below):
            ax.grid(alpha=0.25)
    axes[0, 0].set_ylabel("best accuracy")
    axes[1, 0].set_ylabel("EDS - RDS, paired")
    figure.legend(shown.values(), shown.keys(), fontsize=8, loc="outside lower center", ncols=3)
    return figure
