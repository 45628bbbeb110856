"""The tables of the LEFL report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.judging import format_mean_std
from fedjax_sel.papers.lefl.cells import AS_PUBLISHED, EXPERIMENTS, HIGH, LOW, SHOWN, TARGETS, name_experiment
from fedjax_sel.papers.lefl.latent import CORRELATED
from fedjax_sel.papers.lefl.numbers import MODELS, TABLE_1, compute_gigabytes, find_data, measure
from fedjax_sel.papers.paper import Evidence, Table, join


def make_tables(scale: str, evidence: Evidence) -> list[Table]:
    """Returns the tables: rounds and bytes to targets, accuracy, Table I's arithmetic, clusters, the ablation."""
    histories = evidence.histories
    return join(
        lambda: [tabulate_accuracy(scale, histories)],
        lambda: [tabulate_targets(scale, histories)],
        lambda: [make_cost_table()],
        lambda: [tabulate_clusters(evidence.studies["clusters"])],
        lambda: [tabulate_groups(evidence.studies["ablation"])],
    )


def tabulate_targets(scale: str, histories: Mapping[tuple[str, str], History]) -> Table:
    """Returns the table of rounds and GB to targets, as Table I."""
    rows = []
    for name in EXPERIMENTS[scale]:
        for settings in (AS_PUBLISHED, HIGH, LOW):
            for method in SHOWN:
                history = histories.get((name_experiment(name, settings), method))
                if history is not None:
                    rows.append(
                        (name_experiment(name, settings), method, *format_targets(name, method, settings, history))
                    )
    most = max(len(targets) for targets in TARGETS.values())
    return Table(
        "Rounds, and GB in all, to a target accuracy (as Table I)",
        ("experiment", "method", *(f"target {i + 1}" for i in range(most)), "clients a round", "pre-phase, GB"),
        tuple((*row[:2], *(*row[2:-2], *("—",) * (most + 4 - len(row))), *row[-2:]) for row in rows),
        "A target's cell: its accuracy, the median over seeds of the rounds to it, and of the GB (10⁹ bytes) of all "
        "clients up to there, selection included; >: not in so many rounds. In brackets, as published.",
    )


def format_targets(name: str, method: str, settings: str, history: History) -> tuple[str, ...]:
    """Returns one cell's targets, mean cohort size and cost of the pre-phase."""
    value, texts = measure(name, history), []
    theirs = TABLE_1.get(name, {}).get(method) if settings == AS_PUBLISHED else None
    for target in TARGETS[find_data(name)]:
        rounds, paid = np.median(value[f"rounds_to_{target:g}"]), np.median(value[f"bytes_to_{target:g}"]) / 1e9
        text = f"{target:g}: {rounds:.0f}, {paid:.3g} GB" if np.isfinite(paid) else f"{target:g}: >{history.rounds}"
        texts.append(text if theirs is None else f"{text} ({theirs[0]}, {theirs[2]:.3g} GB)")
    return (*texts, f"{value['cohort'].mean():.1f}", f"{value['selection_bytes'].mean() / 1e9:.3g}")


def tabulate_accuracy(scale: str, histories: Mapping[tuple[str, str], History]) -> Table:
    """Returns the table of final accuracies, by settings."""
    rows = []
    for name in EXPERIMENTS[scale]:
        for method in SHOWN:
            texts = []
            for settings in (AS_PUBLISHED, HIGH, LOW):
                history = histories.get((name_experiment(name, settings), method))
                texts.append("—" if history is None else format_mean_std(measure(name, history)["accuracy_last"]))
            if set(texts) != {"—"}:
                rows.append((name, method, *texts))
    return Table(
        "Accuracy, mean of the last 10 rounds, mean ± std over seeds (Fig. 5)",
        ("experiment", "method", "each as published", "all at LEFL's rate", "all at the baselines' rate"),
        tuple(rows),
        "LEFL's rate: 0.1, times 0.99 after each local epoch, from anew every round. The baselines': 0.01. As "
        "published: LEFL at its rate with its code's allocation (more clients a round), the others at 0.01, FedProx "
        "with μ = 1 (elsewhere 0.001, or as said; the best of them in hindsight is FedProx tuned). "
        "FedAdagrad, FedAdam and FedYogi: server rate 0.01, not tuned.",
    )


def make_cost_table() -> Table:
    """Returns the table of Table I's costs, recomputed from its rounds."""
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
        "plus its pre-phase: model and 1000 public examples of one byte a number down, soft labels of four bytes up, "
        f"for all clients. {clients}. The printed EMNIST numbers count one way only, CIFAR's both; Δ printed is the "
        "difference of the printed totals, pre-phase included, where the source's column has -3.78, -6.9 and +0.02.",
    )


def tabulate_clusters(study: Mapping[str, Any]) -> Table:
    """Returns the table with the numbers of Fig. 2 to 4."""
    rows = []
    for name, row in study.items():
        sizes = np.array([np.sort(s)[::-1] for s in row["sizes"]], float)
        cka = np.array(row["cka"]) if "cka" in row else None
        rows.append(
            (
                name,
                f"{sizes.shape[1]} ({sizes[:, 0].max():.0f} to {sizes[:, -1].min():.0f})",
                format_mean_std(row["entropy_stratified"]),
                *(
                    format_mean_std(row[kind]) if kind in row else "—"
                    for kind in ("entropy_proportional", "entropy_transposed", "entropy_by_labels")
                ),
                format_mean_std(row["entropy_random"]),
                format_mean_std(row["within"]),
                format_mean_std(row["random"]),
                *("—" if cka is None else format_mean_std(cka[:, side, -1]) for side in (0, 1)),
                *(format_mean_std(row[kind]) if kind in row else "—" for kind in CORRELATED),
            )
        )
    return Table(
        "Clusters: relative entropy of cohorts' labels in nats, distance in latent space, CKA of the last layer",
        (
            "experiment",
            "clusters (largest to smallest)",
            "stratified",
            "proportional",
            "proportional, transposed",
            "by true labels",
            "uniform",
            "distance within",
            "in random clusters",
            "CKA within",
            "CKA between",
            "rank correlation, pairs",
            "rank correlation, rows",
        ),
        tuple(rows),
        "Relative entropy of the mean of the cohort's label shares to the labels of all training examples, cohorts of "
        "m clients (those of LEFL, exactly m). Stratified: at least one of each cluster; proportional: a share rounded "
        "by chance; transposed: clusters of the other direction of the divergence. Rank correlation with distance in "
        "latent space: conjectures 1 and 2. By true labels: strata are clusters of the clients' label shares. "
        "Distances: mean over 100 test examples of the last layer's inputs.",
    )


def tabulate_groups(study: Mapping[str, Any]) -> Table:
    """Returns the table with the numbers of section V."""
    rows = [
        (
            name,
            format_mean_std(row["rand"]),
            format_mean_std(row["entropy_stratified"]),
            format_mean_std(row["entropy_random"]),
            format_mean_std(row["within"]),
            format_mean_std(row["random"]),
            *(format_mean_std(np.array(row["cka"])[:, side, -1]) for side in (0, 1)),
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
