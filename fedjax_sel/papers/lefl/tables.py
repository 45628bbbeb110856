"""The tables of the LEFL report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.lefl.cells import AS_PUBLISHED, EXPERIMENTS, HIGH, LOW, METHODS, OTHERS, TARGETS, name_experiment
from fedjax_sel.papers.lefl.numbers import MODELS, TABLE_1, find_data, compute_gigabytes, measure
from fedjax_sel.papers.paper import Evidence, Table


def tables(scale: str, evidence: Evidence) -> list[Table]:
    """Rounds and bytes to targets, accuracy, Table I's arithmetic, clusters, the ablation."""
    histories = evidence.histories
    return [
        accuracy(scale, histories),
        to_targets(scale, histories),
        make_cost_table(),
        clusters(evidence.studies["clusters"]),
        groups(evidence.studies["ablation"]),
    ]


def spread(values: Any, digits: int = 3) -> str:
    """Mean ± standard deviation over seeds."""
    values = np.asarray(values, float)
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def to_targets(scale: str, histories: Mapping[tuple[str, str], History]) -> Table:
    """As Table I."""
    rows = []
    for name in EXPERIMENTS[scale]:
        for settings in (AS_PUBLISHED, HIGH, LOW):
            for method in (*METHODS, *OTHERS):
                history = histories.get((name_experiment(name, settings), method))
                if history is not None:
                    rows.append((name_experiment(name, settings), method, *reached(name, method, settings, history)))
    most = max(len(targets) for targets in TARGETS.values())
    return Table(
        "Rounds, and GB in all, to a target accuracy (as Table I)",
        ("experiment", "method", *(f"target {i + 1}" for i in range(most)), "clients a round", "pre-phase, GB"),
        tuple((*row[:2], *(*row[2:-2], *("—",) * (most + 4 - len(row))), *row[-2:]) for row in rows),
        "A target's cell: its accuracy, the median over seeds of the rounds to it, and of the GB (10⁹ bytes) of all "
        "clients up to there, selection included; >: not in so many rounds. In brackets, as published.",
    )


def reached(name: str, method: str, settings: str, history: History) -> tuple[str, ...]:
    """One cell's targets, mean cohort and cost of the pre-phase."""
    value, texts = measure(name, history), []
    theirs = TABLE_1.get(name, {}).get(method) if settings == AS_PUBLISHED else None
    for target in TARGETS[find_data(name)]:
        rounds, paid = np.median(value[f"rounds_to_{target:g}"]), np.median(value[f"bytes_to_{target:g}"]) / 1e9
        text = f"{target:g}: {rounds:.0f}, {paid:.3g} GB" if np.isfinite(paid) else f"{target:g}: >{history.rounds}"
        texts.append(text if theirs is None else f"{text} ({theirs[0]}, {theirs[2]:.3g} GB)")
    return (*texts, f"{value['cohort'].mean():.1f}", f"{value['selection_bytes'].mean() / 1e9:.3g}")


def accuracy(scale: str, histories: Mapping[tuple[str, str], History]) -> Table:
    """Where all end, by settings."""
    rows = []
    for name in EXPERIMENTS[scale]:
        for method in (*METHODS, *OTHERS):
            texts = []
            for settings in (AS_PUBLISHED, HIGH, LOW):
                history = histories.get((name_experiment(name, settings), method))
                texts.append("—" if history is None else spread(measure(name, history)["accuracy_last"]))
            if set(texts) != {"—"}:
                rows.append((name, method, *texts))
    return Table(
        "Accuracy, mean of the last 10 rounds, mean ± std over seeds (Fig. 5)",
        ("experiment", "method", "each as published", "all at LEFL's rate", "all at the baselines' rate"),
        tuple(rows),
        "LEFL's rate: 0.1, times 0.99 after each local epoch, from anew every round. The baselines': 0.01. As "
        "published: LEFL at its rate with its code's allocation (more clients a round), the others at 0.01, FedProx "
        "with μ = 1 (elsewhere 0.001). FedAdagrad, FedAdam and FedYogi: server rate 0.01, not tuned.",
    )


def make_cost_table() -> Table:
    """Table I's costs, computed anew from its rounds."""
    rows = []
    for name, methods in TABLE_1.items():
        fedavg = sum(compute_gigabytes(name, "FedAvg"))
        for method, (rounds, _, total) in methods.items():
            training, before = compute_gigabytes(name, method)
            difference = total - methods["FedAvg"][2]
            rows.append(
                (
                    name,
                    method,
                    str(rounds) if rounds <= 500 else ">500",
                    f"{total:.3g}",
                    f"{difference:+.2f}",
                    f"{training:.3g}" + (f" + {before:.2g}" if before else ""),
                    f"{training + before - fedavg:+.2f}",
                )
            )
    clients = ", ".join(f"{name}: {p:,} parameters, {n} clients" for name, (p, n, *_) in MODELS.items())
    return Table(
        "Table I's communication, from its own rounds: GB (10⁹ bytes) as printed and as it comes to",
        ("experiment", "method", "rounds", "printed", "Δ printed", "computed", "Δ computed"),
        tuple(rows),
        "Computed: 8 bytes a parameter, client and round (down and up), SCAFFOLD twice that, FedNova as FedAvg; LEFL "
        "plus its pre-phase: model and 1000 public rows of one byte a number down, soft labels of four bytes up, for "
        f"all clients. {clients}. The printed EMNIST numbers count one way only, CIFAR's both; Δ printed is the "
        "difference of the printed totals, pre-phase included, where the source's column has -3.78, -6.9 and +0.02.",
    )


def clusters(study: Mapping[str, Any]) -> Table:
    """Fig. 2 to 4 in numbers."""
    rows = []
    for name, row in study.items():
        sizes = np.array([np.sort(s)[::-1] for s in row["sizes"]], float)
        cka = np.array(row["cka"]) if "cka" in row else None
        rows.append(
            (
                name,
                f"{sizes.shape[1]} ({sizes[:, 0].max():.0f} to {sizes[:, -1].min():.0f})",
                spread(row["entropy_stratified"]),
                spread(row["entropy_by_labels"]),
                spread(row["entropy_random"]),
                spread(row["within"]),
                spread(row["random"]),
                *("—" if cka is None else spread(cka[:, side, -1]) for side in (0, 1)),
            )
        )
    return Table(
        "Clusters: relative entropy of cohorts' labels in nats, distance in latent space, CKA of the last layer",
        (
            "experiment",
            "clusters (largest to smallest)",
            "stratified",
            "by true labels",
            "uniform",
            "distance within",
            "in random clusters",
            "CKA within",
            "CKA between",
        ),
        tuple(rows),
        "Relative entropy of the mean of the cohort's label shares to the labels of all training rows, cohorts of m "
        "clients (those of LEFL, exactly m); by true labels: strata are clusters of the clients' label shares. "
        "Distances: mean over 100 test rows of the last layer's inputs.",
    )


def groups(study: Mapping[str, Any]) -> Table:
    """Section V in numbers."""
    rows = [
        (
            name,
            spread(row["rand"]),
            spread(row["entropy_stratified"]),
            spread(row["entropy_random"]),
            spread(row["within"]),
            spread(row["random"]),
            *(spread(np.array(row["cka"])[:, side, -1]) for side in (0, 1)),
            str(len(row["rand"])),
        )
        for name, row in study.items()
    ]
    return Table(
        "24 clients in five groups with a pair of labels each (section V)",
        (
            "experiment",
            "adjusted Rand index",
            "entropy, stratified",
            "entropy, uniform",
            "distance within",
            "in random clusters",
            "CKA within",
            "CKA between",
            "seeds",
        ),
        tuple(rows),
        "1: the clusters are the groups. CKA of the last layer, mean over pairs of clients.",
    )
