"""The figures of the report on heuristic device selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import figure as mpl

from fedjax_sel.data.federation import DeviceLaw
from fedjax_sel.devices.laws import Uniform
from fedjax_sel.devices.profile import features
from fedjax_sel.engine.history import History
from fedjax_sel.metrics import coverage
from fedjax_sel.papers.device_heuristic.beyond import make_beyond_figures
from fedjax_sel.papers.device_heuristic.cells import (
    ALL,
    DEVICES,
    IID,
    LEVELS,
    PARTITIONS,
    PROPOSED,
    RANDOM,
    SET,
    TENTH,
    list_fractions,
    name_experiment,
)
from fedjax_sel.papers.device_heuristic.numbers import select_rows, select_seconds
from fedjax_sel.papers.device_heuristic.studies import BEST, EVERY, EXACT, EXHAUSTIVE, LETTER
from fedjax_sel.papers.paper import Evidence, Figure, Histories
from fedjax_sel.report.figures import COLOURS, plot_curves

SHOWN = (0.6, 1.0)
"""Range of accuracies drawn."""

LOOKS = {
    ALL: {"color": COLOURS[3]},
    RANDOM: {"color": COLOURS[4]},
    PROPOSED: {"color": COLOURS[0], "linewidth": 2},
    SET: {"color": COLOURS[2], "linestyle": ":", "linewidth": 2},
}

PROPERTIES = ("compute", "energy", "memory", "network")
COLOUR = dict(zip((EVERY, BEST, LETTER, EXACT, EXHAUSTIVE), COLOURS[:1] + COLOURS[2:6], strict=True))


def make_figures(scale: str, evidence: Evidence) -> list[Figure]:
    """Returns figures like the source's, and further ones."""
    epsilons = [epsilon for epsilon in (0.75, 0.5, TENTH) if epsilon in list_fractions(scale)]
    law = Uniform(**{key: value for key, value in LEVELS.items() if key != "name"})
    histories, studies = evidence.histories, evidence.studies
    everything = group_panels(histories, (1.0, *epsilons), (ALL, RANDOM, PROPOSED, SET))
    resources = group_panels(histories, epsilons, (ALL, RANDOM, PROPOSED))
    against = partial(plot_curves, resources, columns=len(epsilons), log=True, ylim=SHOWN, looks=LOOKS)
    return [
        Figure(
            "accuracy",
            "Test accuracy against rounds, as in figures 5.1 to 5.3 of the source: median over seeds, with a band "
            "from the first to the ninth decile. At ε = 1 the three lines coincide; elsewhere, the runs of the two "
            "solvers differ only in seeds in which greedy search misses the optimum.",
            lambda: plot_curves(everything, columns=1 + len(epsilons), ylim=SHOWN, looks=LOOKS),
        ),
        Figure(
            "loss",
            "Test loss against rounds, as in the source's Table 5.1: median over seeds, with a band from the first to "
            "the ninth decile.",
            lambda: plot_curves(everything, "loss", columns=1 + len(epsilons), looks=LOOKS),
        ),
        Figure(
            "accuracy-against-joules",
            "Test accuracy against the energy of all devices together.",
            lambda: against(x="joules", xlabel="joules"),
        ),
        Figure(
            "accuracy-against-seconds",
            "Test accuracy against simulated time, in which a round lasts as long as its slowest device.",
            lambda: against(x="seconds", xlabel="simulated seconds"),
        ),
        Figure(
            "devices",
            "Left: the devices of one seed; the heuristic selects the filled ones at ε = 0.5. Three properties count "
            "by their mean over the set, so one device can compensate for another; the network counts by its minimum. "
            "Middle: mean properties of the first round's devices, and those of the worst of them (crosses), averaged "
            "over seeds. Right: share of the devices, and so of the examples, that took part at least once.",
            lambda: draw_devices(histories, law),
        ),
        Figure(
            "solver-optimality",
            "Share of random instances in which a solver finds the optimum: mean over seeds, with bars of one "
            "standard deviation. The exact solver always finds it.",
            lambda: draw_optimality(studies["solvers"]),
        ),
        Figure(
            "solver-time",
            "Median time of one call, without compilation, with enumeration up to N = 16. Greedy search from every "
            "device takes O(N² s) time, the exact solver O(N log N)."
            + (
                " Hollow: enumeration at N = 30, an instance's share of a call with 100."
                if "enumeration" in studies
                else ""
            ),
            lambda: draw_times(studies["solvers"], studies.get("enumeration")),
        ),
        *make_beyond_figures(evidence.studies),
    ]


def group_panels(
    histories: Histories, epsilons: Sequence[float], methods: Sequence[str]
) -> dict[str, dict[str, History]]:
    """Returns one panel per partition and fraction, each with the run of all devices if it is among the methods."""
    out = {}
    for partition in PARTITIONS:
        for epsilon in epsilons:
            here = {
                method: histories.get((name_experiment(partition, 1.0 if method == ALL else epsilon), method))
                for method in methods
            }
            out[f"{partition}, ε = {epsilon:g}"] = {k: v for k, v in here.items() if v is not None}
    return out


def draw_devices(histories: Histories, law: DeviceLaw) -> mpl.Figure:
    """Draws which devices are selected, their properties, and the share whose data is seen."""
    experiment = name_experiment(IID, 0.5)
    runs = {method: histories[experiment, method] for method in (RANDOM, PROPOSED)}
    figure, (plane, bars, seen) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    f = {seed: np.asarray(features(law.draw(seed, DEVICES), "max")) for seed in runs[PROPOSED].seeds}

    first = runs[PROPOSED].seeds[0]
    chosen = np.isin(np.arange(DEVICES), runs[PROPOSED].selections[0, 0])
    worth = f[first][:3].mean(0)
    for mask, face in ((chosen, COLOURS[0]), (~chosen, "none")):
        plane.scatter(worth[mask], f[first][3][mask], facecolors=face, edgecolors=COLOURS[0], s=45)
    plane.axhline(f[first][3][chosen].min(), color="0.5", linewidth=1, linestyle=":")
    plane.set(xlabel="mean of compute, energy, memory", ylabel="network", title=f"devices of seed {first}")

    for k, (method, history) in enumerate(runs.items()):
        colour = LOOKS[method]["color"]
        mine = [f[seed][:, cohort] for seed, cohort in zip(history.seeds, history.selections[:, 0], strict=True)]
        mean, worst = np.mean([one.mean(1) for one in mine], 0), np.mean([one.min(1) for one in mine], 0)
        place = np.arange(4) + 0.4 * (k - 0.5)
        bars.bar(place, mean, width=0.36, color=colour, alpha=0.75, label=method)
        bars.plot(place, worst, "x", color="black", markersize=6, label=None if k else "worst selected device")
        share = coverage(history.selections, history.num_clients).mean(0)
        seen.plot(np.arange(1, history.rounds + 1), share, color=colour, label=method)
    bars.set_xticks(range(4), PROPERTIES)
    bars.set(title="properties of the selected devices (ε = 0.5)", ylim=(0, 1))
    bars.legend(fontsize=8)
    seen.set(xlabel="round", title="share of the devices ever selected", ylim=(0, 1.03))
    seen.legend(fontsize=8, loc="lower right")
    for ax in (plane, seen):
        ax.grid(alpha=0.25)
    return figure


def draw_optimality(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws the solvers' optimality, one panel per fraction."""
    epsilons = sorted({row["epsilon"] for row in study["optimality"]} - {1.0}, reverse=True)
    figure, axes = plt.subplots(
        1, len(epsilons), figsize=(4.6 * len(epsilons), 3.8), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, epsilon in zip(axes[0], epsilons, strict=True):
        for solver in (EVERY, BEST, LETTER):
            rows = select_rows(study, solver, epsilon=epsilon)
            share = 100 * np.array([row["share_optimal"] for row in rows])
            spread = share.std(1, ddof=1) if share.shape[1] > 1 else None
            ax.errorbar([row["N"] for row in rows], share.mean(1), yerr=spread, marker="o", markersize=4, capsize=2,
                        color=COLOUR[solver], label=solver)  # fmt: skip
        ax.set(title=f"ε = {epsilon:g}", xlabel="devices N", ylim=(0, 104))
        ax.grid(alpha=0.25)
    axes[0][0].set_ylabel("instances solved optimally (%)")
    axes[0][-1].legend(fontsize=8, loc="lower left")
    return figure


def draw_times(study: Mapping[str, Any], enumeration: Mapping[str, Any] | None) -> mpl.Figure:
    """Draws the solvers' times for half of the devices and for a few.

    Args:
      study: of the solvers, one call for one instance.
      enumeration: of all halves of the source's number of devices, one call for all instances; None: it was not run.
    """
    kinds = {"half": "s = N / 2", "few": "s = 10"}
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9), sharey=True, layout="constrained")
    for ax, (wanted, title) in zip(axes, kinds.items(), strict=True):
        for solver in (EXHAUSTIVE, EVERY, BEST, EXACT):
            if found := select_seconds(study, solver, wanted):
                ax.loglog(list(found), list(found.values()), "o-", markersize=4, color=COLOUR[solver], label=solver)
        ax.set(title=title, xlabel="devices N")
        ax.grid(alpha=0.25, which="both")
        ax.legend(fontsize=8, loc="upper left")
    if enumeration is not None:
        (seconds,) = (row["seconds"][EXHAUSTIVE] for row in enumeration["rows"] if row["epsilon"] == 0.5)
        axes[0].loglog(enumeration["N"], seconds, "o", color=COLOUR[EXHAUSTIVE], markerfacecolor="none")
    axes[0].set_ylabel("seconds per call")
    return figure
