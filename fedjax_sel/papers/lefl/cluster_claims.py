"""Verdicts on what LEFL says about its clusters, and about the groups in its ablation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.metrics import difference
from fedjax_sel.papers.differences import compare_factor, compare_with, describe_differences, describe_factor
from fedjax_sel.papers.judging import ask_comparable, ask_not_smaller, judge, judge_larger, make_claim
from fedjax_sel.papers.lefl.cells import find_experiment
from fedjax_sel.papers.lefl.latent import CORRELATED
from fedjax_sel.papers.paper import Claim


def judge_clusters(study: Mapping[str, Any], groups: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims of Fig. 2, 3 and 4.

    Layers are compared wherever clients are few: also where no cell has the same settings, and in the ablation.
    """
    alike = {n: np.array(row["cka"]) for n, row in {**study, **groups}.items() if "cka" in row}
    study = {name: row for name, row in study.items() if find_experiment(name) is not None}
    entropy = {
        name: difference(np.array(row["entropy_random"]), np.array(row["entropy_stratified"]))
        for name, row in study.items()
    }
    nearer = {name: difference(np.array(row["random"]), np.array(row["within"])) for name, row in study.items()}
    labels = {
        name: difference(np.array(row["entropy_stratified"]), np.array(row["entropy_by_labels"]))
        for name, row in study.items()
    }
    share = {
        name: float(np.mean(row["entropy_stratified"]) / np.mean(row["entropy_random"])) for name, row in study.items()
    }
    last = {name: difference(cka[:, 0, -1], cka[:, 1, -1]) for name, cka in alike.items()}
    whose, place = "", "Fig. 2, section IV-A"
    if not study.keys() & alike.keys():
        whose, place = "of the clients in planted groups: ", "Fig. 2 (its last row), section V"
    return [
        make_claim(
            "cohorts-nearer-to-all-labels",
            "With at least one client of each cluster, the labels of stratified cohorts have a lower relative entropy "
            "to the labels of all clients than those of uniform cohorts of the same size",
            "ours: Fig. 4 with other quotas than the text's",
            judge_larger(entropy),
            {"uniform - stratified, nats": describe_differences(entropy), "stratified / uniform": share},
            rests_on=list_experiments(study),
        ),
        make_claim(
            "clusters-nearer-in-latent-space",
            "Models within a cluster are nearer to each other in latent space than models within random clusters of "
            "the same sizes",
            "Fig. 3, section IV-A",
            judge_larger(nearer),
            {"mean distance in random clusters - in LEFL's clusters": describe_differences(nearer)},
            rests_on=list_experiments(study),
        ),
        make_claim(
            "clusters-alike-in-late-layers",
            "In the last layer, models of the same cluster have a higher CKA than models of different clusters "
            f"({whose}{'; '.join(last)})",
            place,
            judge_larger(last),
            {"same cluster - different clusters, last layer": describe_differences(last)},
            rests_on=list_experiments(name for name in study if name in last),
        ),
        *judge_first_layer(
            {name: cka for name, cka in alike.items() if CONVOLUTIONAL in name},
            "clusters-alike-in-the-first-layer",
            "first layer",
            f"{place}: 'all pairs learned similar low level features' (section IV-A)",
        ),
        *judge_first_layer(
            {name: cka for name, cka in alike.items() if CONVOLUTIONAL not in name},
            "clusters-alike-in-the-first-dense-layer",
            "first layer of a dense network",
            "ours: Fig. 2 has a convolutional network alone",
        ),
        make_claim(
            "as-good-as-the-labels",
            "Clusters of soft labels give cohorts whose labels are as near to the labels of all clients as with "
            "clusters of the clients' true labels (at least one client of each cluster; within 0.02 nats)",
            "ours: the best that the method could reach",
            judge(ask_comparable(0.02), labels),
            {"soft labels - true labels, nats": describe_differences(labels)},
            rests_on=list_experiments(study),
        ),
        *judge_quotas(study),
        *judge_conjectures(study, groups),
    ]


CONVOLUTIONAL = "ResNet"
"""In the name of each entry of a study whose network has convolutions."""


def judge_first_layer(alike: Mapping[str, np.ndarray], slug: str, layer: str, source: str) -> list[Claim]:
    """Returns the claim that clusters do not matter in the first layer, about networks of a kind; none without them.

    Args:
      alike: CKA by seed, kind of pair (same cluster, different clusters) and layer, by entry of a study.
      slug: the claim's id.
      layer: what the claim is about.
      source: of the claim.
    """
    if not alike:
        return []
    first = {name: difference(cka[:, 0, 0], cka[:, 1, 0]) for name, cka in alike.items()}
    return [
        make_claim(
            slug,
            f"In the {layer}, models of different clusters are about as alike as models of the same cluster (within "
            f"0.1 in CKA; {'; '.join(first)})",
            source,
            judge(ask_comparable(0.1), first),
            {
                "same cluster - different clusters, first layer": describe_differences(first),
                "same cluster, different clusters": {
                    name: [float(value) for value in cka[:, :, 0].mean(0)] for name, cka in alike.items()
                },
            },
            rests_on=list_experiments(alike),
        )
    ]


def list_experiments(studied: Iterable[str]) -> list[str]:
    """Returns the experiments whose cells have the settings of these entries of a study."""
    return [experiment for experiment in map(find_experiment, studied) if experiment is not None]


def judge_quotas(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims of Fig. 4 with proportional quotas, for both directions of the divergence, if drawn."""
    out = []
    for name, words, source in (
        (
            "entropy_proportional",
            "row i of KL(p_i ‖ p_j), as in the text",
            "Fig. 4, section IV-A: 'a proportional number of clients'",
        ),
        ("entropy_transposed", "row i of KL(p_j ‖ p_i), as in the code", "ours: Fig. 4 with its code's divergence"),
    ):
        lower = {
            n: difference(np.array(row["entropy_random"]), np.array(row[name]))
            for n, row in study.items()
            if name in row
        }
        if lower:
            out.append(
                make_claim(
                    f"{name.replace('entropy_', '')}-cohorts-nearer-to-all-labels",
                    "With proportional quotas, the labels of stratified cohorts have a lower relative entropy to the "
                    "labels of all clients than those of uniform cohorts of the same size (client i is clustered by "
                    f"{words})",
                    source,
                    judge_larger(lower),
                    {"uniform - stratified, nats": describe_differences(lower)},
                    rests_on=list_experiments(lower),
                )
            )
    return out


def judge_conjectures(study: Mapping[str, Any], groups: Mapping[str, Any]) -> list[Claim]:
    """Returns direct tests of conjectures 1 and 2, and of KMeans' distance; none of what was not measured.

    Args:
      study: of the experiments' clients.
      groups: of the clients in planted groups.
    """
    similar = "have learned similar features: over pairs of clients,"
    correlated = "has a rank correlation above 0 with the distance in latent space"
    row = "Clients whose rows of the divergence are similar"
    said = (
        (
            "conjecture-1",
            f"Clients whose divergence (KL_ij + KL_ji) is small {similar} this divergence {correlated}",
            "Conjecture 1, section III",
        ),
        (
            "conjecture-2",
            f"{row} {similar} the mean absolute difference between rows {correlated}",
            "Conjecture 2, section III",
        ),
        (
            "conjecture-2-by-euclidean-distance",
            f"{row} {similar} the Euclidean distance between rows, by which KMeans clusters them, {correlated}",
            "ours: conjecture 2 with the distance of its clustering",
        ),
    )
    out = []
    for kind, (name, text, source) in zip(CORRELATED, said, strict=True):
        found = {n: compare_with(np.array(row[kind]), 0.0) for n, row in {**study, **groups}.items() if kind in row}
        planted = " (also of the 24 clients in planted groups)" if found.keys() & groups.keys() else ""
        if found:
            out.append(
                make_claim(
                    name,
                    f"{text}{planted}",
                    source,
                    judge_larger(found),
                    {"Spearman's rank correlation": describe_differences(found)},
                    rests_on=list_experiments(found),
                )
            )
    return out


def judge_groups(study: Mapping[str, Any]) -> list[Claim]:
    """Returns the claims of section V."""
    rand = {name: np.array(row["rand"]) for name, row in study.items()}
    groups_found = all((value == 1).all() for value in rand.values())
    perfect = {name: compare_with(value, 1.0) for name, value in rand.items()}
    farther = {n: compare_factor(np.array(row["random"]), np.array(row["within"])) for n, row in study.items()}
    return [
        make_claim(
            "groups-are-found",
            "LEFL's clusters of 24 clients are the five groups of clients that share a pair of labels",
            "section V",
            judge(ask_not_smaller(), perfect),
            {"adjusted Rand index by seed": {name: value.tolist() for name, value in rand.items()}},
        ),
        make_claim(
            "groups-nearer-in-latent-space",
            "With these 24 clients, models within a cluster are nearer to each other in latent space than models "
            "within random clusters of the same sizes (compared in decades)",
            "Fig. 6, section V",
            judge_larger(farther),
            {
                "mean distance in random clusters / in LEFL's clusters": {
                    n: describe_factor(d) for n, d in farther.items()
                }
            },
        ),
        *(
            judge_small_entropy(study, *about, fixed=fixed)
            for *about, fixed in (
                (
                    "entropy_stratified",
                    "their-cohorts-hold-all-labels",
                    "one client of each cluster (its code's quotas)",
                    "Fig. 6, section V: 'close to 0'",
                    ALL_GROUPS if groups_found else "",
                ),
                (
                    "entropy_proportional",
                    "their-proportional-cohorts-hold-all-labels",
                    "proportional quotas (the text's)",
                    "Fig. 6, section V: 'close to 0'; section IV-A: 'a proportional number of clients'",
                    LOTTERY if groups_found else "",
                ),
            )
        ),
        judge_uniform_entropy(study),
    ]


LOTTERY = (
    "every cluster is one of the planted groups (groups-are-found), so the shares alone decide: in 4 of 24 draws the "
    "group of four clients has no slot, which costs 0.277 nats; the others have 0.004, and the mean is 0.0498"
)
ALL_GROUPS = "every cluster is one of the planted groups (groups-are-found), so one client of each holds all labels"


def judge_small_entropy(
    study: Mapping[str, Any], name: str, slug: str, quotas: str, source: str, *, fixed: str
) -> Claim:
    """Returns the claim that the labels of cohorts of the 24 clients are close to those of all clients.

    Args:
      study: of the planted groups.
      name: of the cohorts' relative entropy in the study.
      slug: the claim's id.
      quotas: how the slots are divided among the clusters.
      source: of the claim.
      fixed: why no run can come out differently; "" if it can.
    """
    entropy = {n: difference(np.full(len(row[name]), CLOSE), np.array(row[name])) for n, row in study.items()}
    return make_claim(
        slug,
        f"With these 24 clients and {quotas}, the labels of stratified cohorts have a relative entropy close to 0 to "
        f"the labels of all clients (below {CLOSE:g} nats)",
        source,
        judge_larger(entropy),
        {
            "stratified, nats": {n: row[name] for n, row in study.items()},
            "uniform, nats": {n: row["entropy_random"] for n, row in study.items()},
        },
        fixed=fixed,
    )


def judge_uniform_entropy(study: Mapping[str, Any]) -> Claim:
    """Returns the claim that the labels of uniform cohorts of the 24 clients are far from those of all clients."""
    entropy = {n: compare_with(np.array(row["entropy_random"]), CLOSE) for n, row in study.items()}
    return make_claim(
        "their-uniform-cohorts-lack-labels",
        "With these 24 clients, the labels of uniform cohorts have a much higher relative entropy to the labels of all "
        f"clients (above {CLOSE:g} nats)",
        "Fig. 6, section V: 'a much higher relative relative entropy'",
        judge_larger(entropy),
        {"uniform, nats": {n: row["entropy_random"] for n, row in study.items()}},
        fixed=PLANTED,
    )


PLANTED = (
    "it follows from the division alone, whatever the models learn: of all sets of five of the 24 clients, 5.9 % have "
    "one client of each group, the others have at least 0.268 nats, and the mean is 0.426"
)

CLOSE = 0.05
"""What "close to 0" means at most, in nats; with one pair of labels in five missing, the least is 0.223."""
