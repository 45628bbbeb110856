"""The tables of the FedFT-EDS report."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedjax_sel.papers.fedft_eds.methods import (
    ALPHAS,
    CIFAR10,
    EDS,
    FEDAVG,
    PARTS,
    PRETRAINING,
    RDS,
    RHOS,
    SCRATCH,
    STRONG,
    WEAK,
    name_ablation,
    name_by_class,
    name_by_client,
    name_few,
)
from fedjax_sel.papers.fedft_eds.numbers import FLOPS_A_SECOND, find_published, measure
from fedjax_sel.papers.fedft_eds.scales import SCALES, find_studied
from fedjax_sel.papers.measures import format_mean_std
from fedjax_sel.papers.paper import Evidence, Histories, Table, join


def make_tables(scale: str, evidence: Evidence) -> list[Table]:
    """Returns the tables: Tables I to IV in one, costs, Dirichlet laws, ablations, what entropy ranks by, CKA."""
    histories, studies = evidence.histories, evidence.studies
    ablated = any(experiment.startswith("ablation") for experiment, _ in histories)
    return join(
        lambda: [tabulate_accuracy(histories)],
        lambda: [tabulate_costs(scale, histories, studies["time"])],
        lambda: tabulate_laws(scale, histories),
        lambda: [tabulate_ablations(histories)] if ablated else [],
        lambda: [tabulate_ranks(studies["entropies"])],
        lambda: [tabulate_alikeness(studies["alike"])],
    )


def list_main_cells(histories: Histories) -> list[tuple[str, str]]:
    """Returns the keys of all cells except ablations."""
    return [key for key in histories if not key[0].startswith("ablation")]


def tabulate_accuracy(histories: Histories) -> Table:
    """Returns the table of accuracies, as Tables I to IV."""
    rows = []
    for experiment, method in list_main_cells(histories):
        value, theirs = measure(histories[experiment, method]), find_published(experiment, method)
        rows.append(
            (
                experiment,
                method,
                format_mean_std(value["best_accuracy"]),
                format_mean_std(value["accuracy_last"]),
                "—" if theirs is None else f"{theirs:.4f}",
            )
        )
    return Table(
        "Accuracy (Tables I to IV)",
        ("experiment", "method", "best", "last", "published"),
        tuple(rows),
        "Numbers are mean ± std over seeds. Published numbers are with the paper's own data and rounds: all examples, "
        "a number of rounds that it does not give, and for speech another data set; nor does it say of how many runs.",
    )


def tabulate_costs(scale: str, histories: Histories, study: Any) -> Table:
    """Returns the table of seconds, bytes and learning efficiency."""
    rows, timed = [], name_few(find_studied(scale), STRONG)
    for experiment, method in list_main_cells(histories):
        if experiment == PRETRAINING:
            continue
        value, seconds = measure(histories[experiment, method]), study["seconds"].get(method)
        rows.append(
            (
                experiment,
                method,
                f"{value['client_seconds'].mean():.4g}",
                f"{value['efficiency'].mean():.3g}",
                "—"
                if seconds is None or experiment != timed
                else f"{np.median(seconds) / np.median(study['seconds'][FEDAVG]):.2f}",
                f"{value['bytes'].mean() / 1e6:.4g}",
                f"{100 * value['selection_share'].mean():.1f} %",
            )
        )
    return Table(
        "Cost of the clients (Fig. 6 and 7)",
        (
            "experiment",
            "method",
            "client seconds, simulated",
            "learning efficiency",
            "measured time / FedAvg's time",
            "MB",
            "share of FLOPs for selection",
        ),
        tuple(rows),
        f"Simulated seconds are all clients' FLOPs at {FLOPS_A_SECOND / 1e9:g} GFLOP per second, including the choice "
        "of examples and the frozen backbone's forward pass for every example of every step. Learning efficiency is "
        f"points of best accuracy per client second. The measured time is that of {study['rounds']} round of the "
        "simulator with five local epochs (`smoke`: one) and one seed, without compilation; the simulator caches the "
        "backbone's features, which saves the clients nothing.",
    )


BY_CLIENT_LAW, BY_CLASS_LAW = "each client draws its classes", "each class draws its clients"
"""The two Dirichlet laws that may divide the examples."""


def tabulate_laws(scale: str, histories: Histories) -> list[Table]:
    """Returns accuracies under both Dirichlet laws beside the published ones; no table if only one law was run."""
    name, rows = find_studied(scale), []
    by_client, by_class = (name_by_client, name_few) if SCALES[scale].by_class else (name_few, name_by_class)
    laws = {BY_CLIENT_LAW: by_client, BY_CLASS_LAW: by_class}
    for method in (SCRATCH, FEDAVG, RDS, EDS):
        theirs = np.array([find_published(name_few(CIFAR10, a), method) or np.nan for a in (STRONG, WEAK)])
        keys = {law: [(title(name, alpha), method) for alpha in (STRONG, WEAK)] for law, title in laws.items()}
        if np.isnan(theirs).any() or not all(key in histories for both in keys.values() for key in both):
            continue
        for law, both in keys.items():
            ours = [measure(histories[key])["best_accuracy"] for key in both]
            strong, weak = (float(value.mean()) for value in ours)
            published = f"{theirs[0]:.3f}, {theirs[1]:.3f}: {theirs[1] / theirs[0]:.3f}"
            rows.append((method, law, *(format_mean_std(v) for v in ours), f"{weak / strong:.3f}", published))
    if not rows:
        return []
    fits = {
        law: np.mean([abs(np.log(float(row[4]) / float(row[5].rpartition(": ")[2]))) for row in rows if row[1] == law])
        for law in dict.fromkeys(row[1] for row in rows)
    }
    nearest = min(fits, key=lambda law: fits[law])
    told = "; ".join(f"{law}: {value:.3f}" for law, value in fits.items())
    return [
        Table(
            "The law by which examples are divided, which the source leaves open: best accuracy",
            ("method", "law", "α = 0.1", "α = 0.5", "α = 0.5 / α = 0.1", "published, and their ratio"),
            tuple(rows),
            "Accuracies are not comparable across scales, so the ratios are compared: the mean distance of their "
            f"logarithms from the published ones is {told}. The published ratios fit best if {nearest}.",
        )
    ]


def tabulate_ablations(histories: Histories) -> Table:
    """Returns the table with the numbers of Fig. 10."""
    rows = []
    names = [name_ablation("trained:", part) for part in PARTS]
    names += [name_ablation("α =", f"{alpha:g}") for alpha in ALPHAS] + [
        name_ablation("ρ =", f"{rho:g}") for rho in RHOS
    ]
    for name in names:
        texts = [
            format_mean_std(measure(histories[name, way])["best_accuracy"]) if (name, way) in histories else "—"
            for way in ("EDS", "RDS")
        ]
        if set(texts) != {"—"}:
            rows.append((name, *texts))
    return Table("Ablations (Fig. 10): best accuracy", ("experiment", "entropy", "random"), tuple(rows))


def tabulate_ranks(study: Any) -> Table:
    """Returns the table of how similar the orders by entropy and by margin are."""
    rows = [
        (f"ρ = {rho}", format_mean_std(row["correlation"], 4), format_mean_std(row["overlap"]))
        for rho, row in study["rho"].items()
    ]
    return Table(
        "Order of the training examples by entropy, compared with their order by margin, on the final model of "
        "FedFT-ALL",
        ("ρ", "rank correlation", "overlap of the first tenth"),
        tuple(rows),
    )


def tabulate_alikeness(study: Any) -> Table:
    """Returns the table with the numbers of Fig. 4."""
    rows = [
        (name, *(format_mean_std(value) for value in np.array(row["mean"]).T)) for name, row in study["cells"].items()
    ]
    return Table(
        "CKA of clients' models after one round of local training, mean over pairs (Fig. 4)",
        ("method", *study["levels"]),
        tuple(rows),
    )
