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
    EXAMPLES,
    GPFL,
    GROWING,
    LITERAL,
    LONG,
    METHODS,
    NETWORK,
    PARTITIONS,
    PUBLISHED,
    RANDOM,
    RHOS,
    SENSITIVE,
    SWEPT,
    THEIRS,
    name_experiment,
)
from fedjax_sel.papers.gpfl.numbers import (
    CIFAR_ROUNDS,
    LATE,
    SHARES,
    find_data,
    find_published,
    format_round,
    is_as_long,
    list_fair_runs,
    list_partitions,
    measure,
)
from fedjax_sel.papers.measures import format_mean_std
from fedjax_sel.papers.paper import Evidence, Histories, Table, join


def make_tables(scale: str, evidence: Evidence) -> list[Table]:
    """Returns the tables: Table II, all methods, the gap, parameters, cost, regret, partitions."""
    histories, studies = evidence.histories, evidence.studies
    times = [
        tabulate_cost(studies[name], data)
        for name, data in (("time", find_data(histories)), ("time_cifar", CIFAR))
        if studies.get(name, {}).get("methods")
    ]
    both = join(lambda: [make_table_2(histories)], lambda: [tabulate_methods(histories)])
    if not list_partitions(histories):  # CIFAR-10 alone
        return [*both, *times]
    varied = [
        settings
        for settings in (SWEPT, LONG)
        if (name_experiment(find_data(histories), SENSITIVE, settings), GROWING) in histories
    ]
    return [
        *both,
        *join(lambda: [tabulate_gap(histories)]),
        *join(*(lambda settings=settings: [tabulate_sensitivity(histories, settings)] for settings in varied)),
        *times,
        *join(
            lambda: [tabulate_regret(studies["regret"])],
            lambda: [tabulate_partitions(studies["partitions"])],
        ),
    ]


def make_table_2(histories: Histories) -> Table:
    """Returns the source's Table II, with both protocols beside its numbers."""
    rows, data = [], find_data(histories)
    for name in (data, CIFAR):
        for partition in PARTITIONS:
            for method in PUBLISHED:
                for protocol, settings in (("fair", ""), ("as published", AS_PUBLISHED)):
                    history = histories.get((name_experiment(name, partition, settings), method))
                    if history is not None:
                        rows.append(make_row_of_table_2(name, partition, method, protocol, history))
    return Table(
        "Table II: accuracy after 15 % and 50 % of the rounds, and mean of the last 10 rounds ± largest deviation; "
        "published numbers in brackets",
        ("data, partition", "method", "protocol", "15 %", "50 %", "last 10"),
        tuple(rows),
        "Numbers are means over seeds. *Fair*: all methods have FedCor's settings. *As published*: Random, Pow-d and "
        "FedCor have FedCor's settings and d = 10, and GPFL has its own code's settings and rewards by test accuracy. "
        "Each published number is taken as of one run, and is shown only beside runs of as many rounds; if CIFAR-10 "
        "ends at round 300, 15 % of the source's, the last 10 rounds are beside its 15 %.",
    )


def make_row_of_table_2(data: str, partition: str, method: str, protocol: str, history: History) -> tuple[str, ...]:
    """Returns the row of one cell."""
    value = measure(history)

    ends_early = not is_as_long(data, history) and history.rounds == round(SHARES["15 %"] * CIFAR_ROUNDS)

    def format_beside(text: str, column: str) -> str:
        theirs, text = find_published(data, partition, method, column), text.replace("nan", "—")
        shown = theirs is not None and (is_as_long(data, history) or (ends_early and column == "at_15"))
        return f"{text} ({theirs:.3f})" if shown else text

    last = f"{value['accuracy_last'].mean():.3f} ± {value['deviation_last'].mean():.2f}"
    return (
        f"{data}, {partition}",
        method,
        protocol,
        "—" if ends_early else format_beside(f"{value['accuracy_at_15'].mean():.3f}", "at_15"),
        "—" if ends_early else format_beside(f"{value['accuracy_at_50'].mean():.3f}", "at_50"),
        format_beside(last, "at_15" if ends_early else "last"),
    )


def tabulate_methods(histories: Histories) -> Table:
    """Returns the table of all methods under FedCor's settings."""
    rows = []
    for _, _, experiment in list_fair_runs(histories):
        for method in (*METHODS, LITERAL):
            history = histories.get((experiment, method))
            if history is None:
                continue
            value = measure(history)
            rows.append(
                (
                    experiment,
                    method,
                    str(len(value["accuracy_last"])),
                    format_mean_std(value["accuracy_last"]),
                    format_round(value["rounds_to_0.6"], history.rounds),
                    format_round(value["coverage_round"], history.rounds),
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
            "seeds",
            "mean of the last 10 rounds ± std over seeds",
            "rounds to 0.6",
            "round of full coverage",
            "most selections of a client",
            "Jain",
            "GB",
            "TFLOP",
        ),
        tuple(rows),
        "Rounds are medians over seeds; accuracy is evaluated every 5 rounds (CIFAR-10: 10, at `small` and `medium` "
        "15). GB and TFLOP are of all clients together, including selection. "
        f"*{LITERAL}* also has the text's momentum of 0.1.",
    )


def tabulate_gap(histories: Histories) -> Table:
    """Returns the table of steps from Random with FedCor's settings to GPFL as published."""
    steps = (
        ("Random, FedCor's settings", "", RANDOM),
        ("… with GPFL's network (784-64-10)", NETWORK, RANDOM),
        ("… and all of the clients' examples", EXAMPLES, RANDOM),
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
            texts.append("—" if history is None else format_mean_std(measure(history)["accuracy_last"]))
        rows.append((name, *texts))
    return Table(
        "Where the published gap comes from: mean of the last 10 rounds, as mean ± std over seeds",
        ("method and settings", *PARTITIONS),
        tuple(rows),
        "FedCor's settings are 784-64-30-10, 80 % of the examples, a plain mean, and a rate that is halved at rounds "
        "150 and 300. GPFL's settings are 784-64-10, all examples, a mean weighted by size, and a rate that is halved "
        "at rounds 162 and 244.",
    )


def tabulate_sensitivity(histories: Histories, settings: str) -> Table:
    """Returns the table of fixed α, and of ρ of the linear schedule."""
    experiment, rows = name_experiment(find_data(histories), SENSITIVE, settings), []
    for method in (*ALPHAS, *RHOS, GPFL):
        if (history := histories.get((experiment, method))) is None:
            continue
        value = measure(history)
        rows.append(
            (
                method if method != GPFL else "GPFL, its code's schedule",
                str(len(value["accuracy_last"])),
                format_mean_std(value["accuracy_last"]),
                f"{value['deviation_last'].mean():.3f}",
                format_round(value["coverage_round"], history.rounds),
                f"{value['most_selected'].mean():.0f}",
                f"{value['selected_late'].mean():.0f}",
                format_mean_std(value["jain"]),
            )
        )
    return Table(
        f"Sensitivity of GPFL to α and ρ ({SENSITIVE}, {settings})",
        (
            "method",
            "seeds",
            "mean of the last 10 rounds",
            "largest deviation",
            "round of full coverage",
            "most selections of a client",
            f"clients in the last {LATE} rounds",
            "Jain",
        ),
        tuple(rows),
    )


def tabulate_cost(study: Mapping[str, Any], data: str) -> Table:
    """Returns the table of measured and simulated costs."""
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
        f"Cost of {study['rounds']} rounds ({data}, {SENSITIVE}, FedCor's settings)",
        ("method", "measured time / Random's time", "simulated s", "simulated J", "MB", "GFLOP"),
        tuple(rows),
        f"Times were measured on {study['device']}, without compilation, with seed {study['seed']}, as the median of "
        f"{len(random)} turns of all methods; every method evaluates the model once per round. Simulated devices have "
        "the law `lognormal`; a round lasts as long as its slowest client, including queries and probes.",
    )


def tabulate_regret(study: Mapping[str, Any]) -> Table:
    """Returns the table of regret in the small federation."""
    rows = [
        (method, format_mean_std(np.array(row["share"])), format_mean_std(np.array(row["final_accuracy"])))
        for method, row in study["methods"].items()
    ]
    return Table(
        f"Regret in a federation in which all cohorts can be tried: digits, {study['clients']} clients, m = "
        f"{study['m']}, {study['rounds']} rounds, {len(study['seeds'])} seeds",
        ("method", "regret, as a share of a random cohort's regret", "final accuracy"),
        tuple(rows),
        "A cohort's value is how much the mean of its updates lowers the validation loss in that round. A regret of 0 "
        "is that of the oracle.",
    )


def tabulate_partitions(study: Mapping[str, Any]) -> Table:
    """Returns the table of the partitions as drawn."""
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
        ("partition", "examples per client", "std over clients", "fewest", "most", "classes above 5 %"),
        tuple(rows),
        "Hold-out examples are included. Numbers are means over seeds; *fewest* and *most* are over all seeds.",
    )
