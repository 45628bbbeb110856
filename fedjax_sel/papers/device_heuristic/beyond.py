"""Questions that the thesis leaves open: enumeration at its own size, other weights, devices that change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import figure as mpl

from fedjax_sel.metrics import Difference, adjust_holm, cost_to, difference, rounds_to
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from fedjax_sel.papers.device_heuristic.cells import ALL, PARTITIONS, PROPOSED, RANDOM, name_experiment
from fedjax_sel.papers.device_heuristic.changing import AGAIN, CHANCE, LASTS, ONCE, WAYS
from fedjax_sel.papers.device_heuristic.numbers import NOTICED, OURS
from fedjax_sel.papers.device_heuristic.studies import BEST, EVERY, EXACT, EXHAUSTIVE, SAME
from fedjax_sel.papers.device_heuristic.weights import EQUAL
from fedjax_sel.papers.differences import describe_difference, describe_differences, pool
from fedjax_sel.papers.judging import LEVEL, judge_larger, make_claim
from fedjax_sel.papers.paper import Claim, Evidence, Figure, Histories, Table
from fedjax_sel.report.figures import COLOURS

FASTER = 10
"""The factor that counts as "far less time"."""

THRESHOLDS = (0.8, 0.9, 0.95)
"""Accuracies f(φ) at which training may stop."""


def judge_beyond(studies: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims of the studies that were run."""
    out = []
    if "enumeration" in studies:
        out.append(judge_enumeration(studies["enumeration"]))
    if "weights" in studies:
        out.append(judge_weights(studies["weights"]))
    if "changing" in studies:
        out += judge_changing(studies["changing"])
    return out


def judge_enumeration(study: Mapping[str, Any]) -> Claim:
    """Returns the verdict on time and optimality at the size at which the thesis compares them."""
    rows = {f"epsilon={row['epsilon']:g}": row for row in study["rows"]}
    times = {name: row["seconds"][EXHAUSTIVE] / row["seconds"][EVERY] for name, row in rows.items()}
    apart = max(row["largest_difference"] for row in rows.values())
    return make_claim(
        "faster-at-thirty-devices",
        f"At the thesis's own N = {study['N']}, the algorithm takes far less time than enumerating all sets (at least "
        f"{FASTER} times less, at ε = 0.75 and 0.5)",
        "4.2; 5.2",
        REPRODUCED if min(times.values()) >= FASTER and apart <= SAME else NOT_REPRODUCED,
        {
            "enumeration / greedy, seconds": times,
            "sets enumerated": {name: row["sets"] for name, row in rows.items()},
            "share of instances with the enumerated optimum": {
                name: row["share_optimal"][EVERY] for name, row in rows.items()
            },
            "largest difference between the exact solver and enumeration": apart,
        },
    )


def compare_weights(study: Mapping[str, Any]) -> dict[str, dict[str, Difference]]:
    """Returns seconds and joules per round of the source's weights over each other's (decades), mean of partitions."""
    out: dict[str, dict[str, Difference]] = {}
    for weights, found in study["grid"].items():
        if weights != EQUAL:
            out[weights] = {
                cost: difference(
                    *(
                        np.mean([np.log10(by[partition][cost]) for partition in PARTITIONS], axis=0)
                        for by in (study["grid"][EQUAL], found)
                    )
                )
                for cost in ("seconds", "joules")
            }
    return out


def judge_weights(study: Mapping[str, Any]) -> Claim:
    """Returns the verdict on the thesis's weights against each other setting, with Holm's correction over all tests."""
    over = compare_weights(study)
    both = adjust_holm([max(d.p_above() for d in by.values()) for by in over.values()])
    better = [weights for weights, p in zip(over, both, strict=True) if p <= LEVEL]
    tests = [(weights, d.p_below()) for weights, by in over.items() for d in by.values()]
    either = adjust_holm([p for _, p in tests])
    worse = {weights for (weights, _), p in zip(tests, either, strict=True) if p <= LEVEL}
    alone = sum(any(d.high < 0 for d in by.values()) for by in over.values())
    return make_claim(
        "equal-weights-balance",
        "The weights α = β = γ = δ = 0.25 strike the balance: all other weights of the grid need more time or more "
        "energy per round",
        "5.1: 'to strike the optimal balance between properties'",
        NOT_REPRODUCED if better else REPRODUCED if len(worse) == len(over) else UNDECIDED,
        {
            "more time or more energy, after Holm's correction": f"{len(worse)} of {len(over)}",
            "without the correction": f"{alone} of {len(over)}",
            "less of both, after Holm's correction (decades of seconds, of joules)": {
                weights: {cost: describe_difference(d) for cost, d in over[weights].items()} for weights in better
            }
            or "none",
            "weight on memory": "has no effect in the simulation; it is taken from the other weights",
        },
    )


def take_last(study: Mapping[str, Any], way: str, name: str, partition: str) -> np.ndarray:
    """Returns one number per seed: for accuracy, that after the last round; otherwise the sum over rounds."""
    value = np.array(study["partitions"][partition][way][name], np.float64)
    return value[:, -1] if name == "accuracy" else value.sum(1)


def judge_changing(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims on the value of selecting in every round if devices change."""
    over = {
        other: {
            p: difference(take_last(study, AGAIN, "accuracy", p), take_last(study, other, "accuracy", p))
            for p in PARTITIONS
        }
        for other in (ONCE, CHANCE)
    }
    shown = {
        way: {p: float(take_last(study, way, "members", p).mean() / study["rounds"]) for p in PARTITIONS}
        for way in WAYS
    }
    return [
        make_claim(
            name,
            f"If batteries drain (a full one lasts {100 * LASTS:g} % of the rounds) and networks change, selecting in "
            f"every round ends at a higher accuracy than {words}",
            f"{OURS}: devices that change (4: 'reiterated at each learning round')",
            judge_larger(over[other], NOTICED),
            {
                "difference of final accuracy": describe_differences(over[other]),
                "the same, pooled over both partitions, if a full battery lasts": {
                    f"{100 * float(lasts):g} % of the rounds": describe_difference(pool(compare_batteries(by, other)))
                    for lasts, by in study["other batteries"].items()
                },
                "members per round": shown,
            },
            rests_on=[name_experiment(p, 0.5) for p in PARTITIONS],
        )
        for name, other, words in (
            ("selecting-again-pays", ONCE, "selecting once"),
            ("selecting-again-beats-chance", CHANCE, "drawing devices at random in every round"),
        )
    ]


def compare_batteries(by: Mapping[str, Any], other: str) -> dict[str, Difference]:
    """Returns the final accuracy of selecting in every round minus another way's, by partition."""
    return {p: difference(*(np.array(by[p][way]["final_accuracy"]) for way in (AGAIN, other))) for p in PARTITIONS}


def make_beyond_tables(evidence: Evidence) -> list[Table]:
    """Returns the table of thresholds and those of the studies that were run."""
    studies, out = evidence.studies, [tabulate_thresholds(evidence.histories)]
    if "enumeration" in studies:
        out.append(tabulate_enumeration(studies["enumeration"]))
    if "weights" in studies:
        out.append(tabulate_weights(studies["weights"]))
    if "changing" in studies:
        out += [tabulate_changing(studies["changing"]), tabulate_batteries(studies["changing"])]
    return out


def tabulate_thresholds(histories: Histories) -> Table:
    """Returns the cost of training that stops at the threshold f(φ)."""
    rows = []
    for partition in PARTITIONS:
        for epsilon, method in ((1.0, ALL), (0.5, RANDOM), (0.5, PROPOSED)):
            history = histories[name_experiment(partition, epsilon), method]
            for threshold in THRESHOLDS:
                accuracy = np.round(history["accuracy"].astype(np.float64), 6)
                rounds = rounds_to(accuracy, threshold)
                reached = rounds <= history.rounds
                spent = (cost_to(accuracy, history.cumulative(cost), threshold) for cost in ("seconds", "joules"))
                rows.append(
                    (
                        name_experiment(partition, epsilon),
                        method,
                        f"{threshold:g}",
                        f"{reached.sum()} of {len(reached)}",
                        f"{np.median(rounds):g}" if np.median(rounds) <= history.rounds else "never",
                        *(f"{np.median(v):.3g}" if np.isfinite(np.median(v)) else "never" for v in spent),
                    )
                )
    return Table(
        "Training that stops at the accuracy threshold f(φ) of equation (3.3)",
        ("experiment", "method", "f(φ)", "seeds that reach it", "rounds", "simulated s", "J"),
        tuple(rows),
        "Numbers are medians over seeds. f(φ) adds a constant to H, so it has no effect on which devices are "
        "selected; as a rule that ends training, it decides how much is spent.",
    )


def tabulate_enumeration(study: Mapping[str, Any]) -> Table:
    """Returns time and optimality of each solver, with enumeration, at the source's own size."""
    rows = [
        (
            f"{row['epsilon']:g}",
            f"{row['sets']:,}",
            solver,
            f"{1e3 * row['seconds'][solver]:.3g} ms",
            f"{100 * row['share_optimal'][solver]:.0f} %",
        )
        for row in study["rows"]
        for solver in (EXHAUSTIVE, EVERY, BEST, EXACT)
    ]
    return Table(
        f"Enumeration of all sets at the source's own N = {study['N']}",
        ("ε", "sets", "solver", "time of an instance", "instances with the enumerated optimum"),
        tuple(rows),
        f"There are {study['rows'][0]['instances']} random instances, which are not the devices of the runs above. "
        "They were timed in one call, without compilation.",
    )


def tabulate_weights(study: Mapping[str, Any]) -> Table:
    """Returns accuracy and costs by weights."""
    rows = [
        (
            weights,
            *(f"{np.mean(by[p]['final_accuracy']):.3f}" for p in PARTITIONS),
            *(f"{1e3 * np.median(by[PARTITIONS[0]][cost]):.3g}" for cost in ("seconds", "joules")),
        )
        for weights, by in study["grid"].items()
    ]
    return Table(
        "A grid over α, β, γ, δ (ε = 0.5, optimal sets): mean final accuracy, median ms and mJ per round",
        ("α, β, γ, δ", *PARTITIONS, "ms per round", "mJ per round"),
        tuple(rows),
        "Memory has no effect in the simulation, so weight on it is only taken from the other properties.",
    )


def tabulate_changing(study: Mapping[str, Any]) -> Table:
    """Returns accuracy, members and costs if devices change."""
    rows = []
    for partition in PARTITIONS:
        for way in WAYS:
            value = {n: take_last(study, way, n, partition) for n in ("accuracy", "members", "seconds", "joules")}
            last = np.array(study["partitions"][partition][way]["members"])[:, -1]
            rows.append(
                (
                    partition,
                    way,
                    f"{value['accuracy'].mean():.3f} ± {value['accuracy'].std(ddof=1):.3f}",
                    f"{value['members'].mean() / study['rounds']:.1f}",
                    f"{last.mean():.1f}",
                    f"{np.median(value['seconds']):.3g}",
                    f"{np.median(value['joules']):.3g}",
                )
            )
    return Table(
        "Devices that change: batteries drain, and networks are redrawn in every round (ε = 0.5, so 15 devices are "
        "wanted)",
        (
            "partition",
            "devices are",
            "final accuracy",
            "members per round",
            "members in the last round",
            "simulated s",
            "J",
        ),
        tuple(rows),
        "A full battery lasts for half of the rounds with its device's initial network, so devices that are selected "
        "once are empty by then. f2 is the energy efficiency times the charge that is left. A device that cannot pay "
        "for a round is not available. Every available device is billed for reporting four numbers (16 bytes): in "
        "every round, only in the first if devices are selected once, and never if they are random.",
    )


def tabulate_batteries(study: Mapping[str, Any]) -> Table:
    """Returns accuracy and members of each way with batteries that last for longer or shorter."""
    usual = {
        p: {
            way: {
                "final_accuracy": take_last(study, way, "accuracy", p),
                "members": take_last(study, way, "members", p) / study["rounds"],
            }
            for way in WAYS
        }
        for p in PARTITIONS
    }
    batteries = {**study["other batteries"], f"{LASTS:g}": usual}
    rows = [
        (
            f"{100 * float(lasts):g} %",
            way,
            *(f"{np.mean(batteries[lasts][p][way]['final_accuracy']):.3f}" for p in PARTITIONS),
            *(f"{np.mean(batteries[lasts][p][way]['members']):.1f}" for p in PARTITIONS),
        )
        for lasts in sorted(batteries, key=float)
        for way in WAYS
    ]
    return Table(
        "Devices that change: how the results depend on the batteries",
        ("a full battery lasts", "devices are", *PARTITIONS, *(f"members per round, {p}" for p in PARTITIONS)),
        tuple(rows),
        "A battery's life is a share of the rounds, for a device that trains in every round with its initial network. "
        "Accuracies are means of the final accuracy.",
    )


def make_beyond_figures(studies: Mapping[str, Any]) -> list[Figure]:
    """Returns the figures of the studies that were run."""
    out = []
    if "weights" in studies:
        caption = (
            "Effect of each weight: mean final accuracy, and median seconds and joules per round, over all weights of "
            "the grid in which that property has this weight, and over both partitions."
        )
        out.append(Figure("weights", caption, lambda: draw_weights(studies["weights"])))
    if "changing" in studies:
        caption = "Devices that change: accuracy and members by round, mean over seeds."
        out.append(Figure("changing", caption, lambda: draw_changing(studies["changing"])))
    return out


def draw_weights(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws means over the grid against each weight."""
    grid = [(tuple(map(float, name.split(", "))), by) for name, by in study["grid"].items()]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
    shown = {"final_accuracy": np.mean, "seconds": np.median, "joules": np.median}
    for ax, (measure, middle) in zip(axes, shown.items(), strict=True):
        for i, name in enumerate(study["weights"]):
            by_weight: dict[float, list[float]] = {}
            for weights, by in grid:
                values = [value for p in PARTITIONS for value in by[p][measure]]
                by_weight.setdefault(weights[i], []).append(float(middle(values)))
            place = sorted(by_weight)
            ax.plot(place, [np.mean(by_weight[w]) for w in place], "o-", markersize=4, color=COLOURS[i], label=name)
        ax.set(xlabel="weight", title=measure.replace("_", " "), yscale="linear" if measure[0] == "f" else "log")
        ax.grid(alpha=0.25)
    axes[0].legend(fontsize=8)
    return figure


def draw_changing(study: Mapping[str, Any]) -> mpl.Figure:
    """Draws accuracy and members of each way."""
    figure, axes = plt.subplots(2, len(PARTITIONS), figsize=(9, 5), sharex=True, layout="constrained")
    for column, partition in zip(axes.T, PARTITIONS, strict=True):
        for ax, name in zip(column, ("accuracy", "members"), strict=True):
            for way, colour in zip(WAYS, (COLOURS[0], COLOURS[2], COLOURS[4]), strict=True):
                value = np.array(study["partitions"][partition][way][name]).mean(0)
                ax.plot(np.arange(1, len(value) + 1), value, color=colour, label=way)
            ax.set(ylabel=name)
            ax.grid(alpha=0.25)
        column[0].set_title(partition)
        column[1].set_xlabel("round")
    axes[0, 0].legend(fontsize=8)
    return figure
