"""The tables of the GPFL report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.gpfl.cells import (
    ALPHAS,
    AS_PUBLISHED,
    CIFAR,
    GPFL,
    METHODS,
    NETWORK,
    PARTITIONS,
    PUBLISHED,
    RANDOM,
    RHOS,
    ROWS,
    SENSITIVE,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.numbers import list_fair_runs, find_data, measure, find_published
from fedjax_sel.papers.paper import Evidence, Histories, Table


def tables(scale: str, evidence: Evidence) -> list[Table]:
    """Table II, all methods, the gap, parameters, cost, regret, partitions."""
    histories, studies = evidence.histories, evidence.studies
    return [
        table_2(histories),
        whole(histories),
        gap(histories),
        sensitivity(histories),
        cost(studies["time"]),
        regret(studies["regret"]),
        partitions(studies["partitions"]),
    ]


def spread(values: np.ndarray, digits: int = 3) -> str:
    """Mean ± standard deviation over seeds."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def table_2(histories: Histories) -> Table:
    """The source's Table II, with both protocols beside its numbers."""
    rows, data = [], find_data(histories)
    for name in (data, CIFAR):
        for partition in PARTITIONS:
            for method in PUBLISHED:
                for protocol, settings in (("fair", ""), ("as published", AS_PUBLISHED)):
                    history = histories.get((name_experiment(name, partition, settings), method))
                    if history is not None:
                        rows.append(row_of_table_2(name, partition, method, protocol, history))
    return Table(
        "Table II: accuracy at 15 % and 50 % of the rounds, mean of the last 10 ± largest deviation; in brackets "
        "as published",
        ("data, partition", "method", "protocol", "15 %", "50 %", "last 10"),
        tuple(rows),
        "Means over seeds. *Fair*: FedCor's settings for all. *As published*: Random, Pow-d and FedCor with FedCor's "
        "settings and d = 10, GPFL with its own code's settings and rewards by test accuracy. The published numbers "
        "are of one run each.",
    )


def row_of_table_2(data: str, partition: str, method: str, protocol: str, history: History) -> tuple[str, ...]:
    """One cell's row."""
    value = measure(history)

    def beside(text: str, what: str) -> str:
        theirs, text = find_published(data, partition, method, what), text.replace("nan", "—")
        return text if theirs is None else f"{text} ({theirs:.3f})"

    last = f"{value['accuracy_last'].mean():.3f} ± {value['deviation_last'].mean():.2f}"
    return (
        f"{data}, {partition}",
        method,
        protocol,
        beside(f"{value['accuracy_at_15'].mean():.3f}", "15 %"),
        beside(f"{value['accuracy_at_50'].mean():.3f}", "50 %"),
        beside(last, "last"),
    )


def whole(histories: Histories) -> Table:
    """All methods under FedCor's settings."""
    rows = []
    for _, _, experiment in list_fair_runs(histories):
        for method in METHODS:
            history = histories.get((experiment, method))
            if history is None:
                continue
            value = measure(history)
            to = float(np.median(value["rounds_to_0.6"]))
            covered = float(np.median(value["coverage_round"]))
            rows.append(
                (
                    experiment,
                    method,
                    spread(value["accuracy_last"]),
                    f"{to:.0f}" if to <= history.rounds else f">{history.rounds}",
                    f"{covered:.0f}" if covered <= history.rounds else f">{history.rounds}",
                    f"{value['most_selected'].mean():.0f}",
                    f"{value['jain'].mean():.2f}",
                    f"{value['bytes'].mean() / 1e9:.3g}",
                    f"{value['flops'].mean() / 1e12:.3g}",
                )
            )
    return Table(
        "All methods under FedCor's settings",
        (
            "experiment",
            "method",
            "last 10, mean ± std over seeds",
            "rounds to .60",
            "full coverage after",
            "largest count",
            "Jain",
            "GB",
            "TFLOP",
        ),
        tuple(rows),
        "Rounds are medians over seeds, evaluated every 5 rounds (CIFAR-10: 10, at `small` 15). GB and TFLOP: all "
        "clients together, selection included.",
    )


def gap(histories: Histories) -> Table:
    """From Random with FedCor's settings to GPFL as published."""
    steps = (
        ("Random, FedCor's settings", "", RANDOM),
        ("… with GPFL's network (784-64-10)", NETWORK, RANDOM),
        ("… and all of the clients' rows", ROWS, RANDOM),
        ("… and its schedule and weights: GPFL's settings", THEIRS, RANDOM),
        ("GPFL, FedCor's settings", "", GPFL),
        ("GPFL, GPFL's settings", THEIRS, GPFL),
        ("… and rewards by test accuracy: GPFL as published", AS_PUBLISHED, GPFL),
    )
    data, rows = find_data(histories), []
    for name, settings, method in steps:
        texts = []
        for partition in PARTITIONS:
            history = histories.get((name_experiment(data, partition, settings), method))
            texts.append("—" if history is None else spread(measure(history)["accuracy_last"]))
        rows.append((name, *texts))
    return Table(
        "Where the published gap comes from: mean of the last 10, mean ± std over seeds",
        ("what was run", *PARTITIONS),
        tuple(rows),
        "FedCor's settings: 784-64-30-10, 80 % of the rows, plain mean, rate halved at rounds 150 and 300. GPFL's: "
        "784-64-10, all rows, mean by size, rate times 0.1 at rounds 162 and 244.",
    )


def sensitivity(histories: Histories) -> Table:
    """α fixed, and ρ of the linear schedule."""
    experiment, rows = name_experiment(find_data(histories), SENSITIVE, THEIRS), []
    for method in (*ALPHAS, *RHOS, GPFL):
        value = measure(histories[experiment, method])
        rows.append(
            (
                method if method != GPFL else "GPFL, its code's schedule",
                spread(value["accuracy_last"]),
                f"{value['deviation_last'].mean():.3f}",
                f"{np.median(value['coverage_round']):.0f}",
                f"{value['most_selected'].mean():.0f}",
                spread(value["jain"]),
            )
        )
    return Table(
        f"Sensitivity of GPFL to α and ρ ({SENSITIVE}, GPFL's settings)",
        ("method", "last 10", "largest deviation", "full coverage after", "largest count", "Jain"),
        tuple(rows),
    )


def cost(study: Mapping[str, Any]) -> Table:
    """Measured and simulated."""
    random = np.array(study["methods"][RANDOM]["measured_seconds"])
    rows = [
        (
            method,
            f"{np.median(np.array(row['measured_seconds']) / random):.2f}",
            f"{row['seconds']:.4g}",
            f"{row['joules']:.4g}",
            f"{row['bytes'] / 1e6:.4g}",
            f"{row['flops'] / 1e9:.4g}",
        )
        for method, row in study["methods"].items()
    ]
    return Table(
        f"What {study['rounds']} rounds cost ({SENSITIVE}, FedCor's settings)",
        ("method", "measured time over Random's", "simulated s", "simulated J", "MB", "GFLOP"),
        tuple(rows),
        f"Measured: {study['device']}, compiled beforehand, seed {study['seed']}, median of "
        f"{len(random)} turns of all methods. Simulated: devices of the law `lognormal`; a round lasts as long as its "
        "slowest client, asking and probing included.",
    )


def regret(study: Mapping[str, Any]) -> Table:
    """In the small case."""
    rows = [
        (method, spread(np.array(row["share"])), spread(np.array(row["final_accuracy"])))
        for method, row in study["methods"].items()
    ]
    return Table(
        f"Regret where all cohorts can be tried: digits, {study['clients']} clients, m = {study['m']}, "
        f"{study['rounds']} rounds, {len(study['seeds'])} seeds",
        ("method", "regret, as a share of a random cohort's", "final accuracy"),
        tuple(rows),
        "A cohort's value: how much the mean of its updates lowers the validation loss in that round. 0 is the oracle.",
    )


def partitions(study: Mapping[str, Any]) -> Table:
    """As drawn."""
    rows = [
        (
            name,
            f"{row['mean']:.1f}",
            f"{row['std']:.1f}",
            str(row["smallest"]),
            str(row["largest"]),
            f"{row['classes above 5 %']:.2f}",
        )
        for name, row in study.items()
    ]
    return Table(
        "Partitions as drawn",
        ("partition", "rows a client", "std over clients", "fewest", "most", "classes above 5 %"),
        tuple(rows),
        "Hold-out rows included. Means over seeds, fewest and most over all of them.",
    )
