"""The tables of the LEFL report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.lefl.cells import AS_PUBLISHED, EXPERIMENTS, HIGH, LOW, SHOWN, name_experiment
from fedjax_sel.papers.lefl.latent import CORRELATED
from fedjax_sel.papers.lefl.numbers import MODELS, PUBLISHED_ROUNDS, TABLE_1, compute_gigabytes, list_targets, measure
from fedjax_sel.papers.measures import format_mean_std
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
    most = max(len(list_targets(name)) for name in EXPERIMENTS[scale])
    return Table(
        "Rounds and total GB to reach a target accuracy (as in Table I)",
        ("experiment", "method", *(f"target {i + 1}" for i in range(most)), "clients per round", "pre-phase, GB"),
        tuple((*row[:2], *(*row[2:-2], *("—",) * (most + 4 - len(row))), *row[-2:]) for row in rows),
        "Each target's cell has the accuracy, and the medians over seeds of the rounds to reach it and of the GB (10⁹ "
        "bytes) of all clients until then, including selection; > means that the target was not reached in so many "
        "rounds. Published numbers are in brackets.",
    )


def format_targets(name: str, method: str, settings: str, history: History) -> tuple[str, ...]:
    """Returns one cell's targets, mean cohort size and cost of the pre-phase."""
    value, texts = measure(name, history), []
    theirs = TABLE_1.get(name, {}).get(method) if settings == AS_PUBLISHED else None
    for target in list_targets(name):
        rounds, paid = np.median(value[f"rounds_to_{target:g}"]), np.median(value[f"bytes_to_{target:g}"]) / 1e9
        text = f"{target:g}: {rounds:.0f}, {paid:.3g} GB" if np.isfinite(paid) else f"{target:g}: >{history.rounds}"
        texts.append(text if theirs is None else f"{text} ({format_published(theirs[0])}, {theirs[2]:.3g} GB)")
    return (*texts, f"{value['cohort'].mean():.1f}", f"{value['selection_bytes'].mean() / 1e9:.3g}")


def format_published(rounds: int) -> str:
    """Returns a number of rounds as the source has it, which ends after 500.

    >>> format_published(256), format_published(501)
    ('256', '>500')
    """
    return str(rounds) if rounds <= PUBLISHED_ROUNDS else f">{PUBLISHED_ROUNDS}"


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
        "Accuracy (Fig. 5): mean of the last 10 rounds, as mean ± std over seeds",
        ("experiment", "method", "each as published", "all at LEFL's rate", "all with the text's settings"),
        tuple(rows),
        "LEFL's rate is 0.1, multiplied by 0.99 after each local epoch and reset in every round. The text's settings "
        "are a rate of 0.01 and the same decay, which also persists over rounds. As published, LEFL has its own rate "
        "and its code's quotas (more clients per round), and the others have the text's settings; elsewhere, LEFL has "
        "its text's quotas, unless stated otherwise. FedProx has μ = 0.001 at LEFL's rate, unless stated otherwise, "
        "and μ = 1 with the text's settings; tuned FedProx is the one that is best in hindsight.",
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
                    format_published(rounds),
                    f"{total:.3g}",
                    f"{difference:+.2f}",
                    f"{training:.3g}" + (f" + {before:.2g}" if before else ""),
                    f"{training + before - fedavg:+.2f}",
                )
            )
    clients = ", ".join(f"{name}: {p:,} parameters, {n} clients" for name, (p, n, *_) in MODELS.items())
    return Table(
        "Communication in Table I, in GB (10⁹ bytes): as printed, and as computed from its own rounds",
        ("experiment", "method", "rounds", "printed", "Δ printed", "computed", "Δ computed"),
        tuple(rows),
        "We compute 8 bytes per parameter, client and round (down and up), twice as many for SCAFFOLD, and as many "
        "for FedNova as for FedAvg. LEFL adds its pre-phase, in which all clients receive the model and 1000 public "
        f"examples of one byte per number, and send soft labels of four bytes per number. {clients}. The printed "
        "numbers count one direction only for EMNIST, and both for CIFAR. Δ is the difference from FedAvg. Δ printed "
        "uses the printed totals, including the pre-phase; the source's own column has -3.78, -6.9 and +0.02.",
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
            "distance within clusters",
            "distance within random clusters",
            "CKA within clusters",
            "CKA between clusters",
            "rank correlation, pairs",
            "rank correlation, rows (mean absolute difference)",
            "rank correlation, rows (Euclidean)",
        ),
        tuple(rows),
        "The relative entropy is that of the labels of the cohort's pooled examples to the labels of all training "
        "examples, for cohorts of m clients (exactly m also for LEFL). *Proportional* takes each cluster's share, "
        "rounded at random, as LEFL does in our runs; *stratified* takes at least one client of each cluster; "
        "*transposed* has clusters of the other direction of the divergence; *by true labels* takes at least one "
        "client of each cluster of the clients' label shares. "
        "Distances are between the last layer's inputs, averaged over 100 test examples. The rank correlations with "
        "this distance test conjectures 1 and 2; KMeans clusters by the Euclidean distance between rows.",
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
        "24 clients in five groups, each of which shares a pair of labels (section V)",
        (
            "experiment",
            "adjusted Rand index",
            "entropy, stratified",
            "entropy, uniform",
            "distance within clusters",
            "distance within random clusters",
            "CKA within clusters",
            "CKA between clusters",
            "seeds",
        ),
        tuple(rows),
        "A Rand index of 1 means that the clusters are the groups. CKA is that of the last layer, averaged over pairs "
        "of clients.",
    )
