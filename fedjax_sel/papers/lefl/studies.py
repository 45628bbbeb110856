"""Studies that no run of the LEFL reproduction gives: clusters, their members' models, stratified cohorts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection.lefl import LEFL, cluster_clients
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.compiled import jit
from fedjax_sel.config import Run, build, resolve
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.partition.label_groups import LabelGroups
from fedjax_sel.engine.init import selector_inputs
from fedjax_sel.engine.keys import Purpose, key_for, make_key
from fedjax_sel.engine.layout import Layout
from fedjax_sel.metrics.labels import cohort_divergence
from fedjax_sel.papers.lefl.cells import EXPERIMENTS, METHODS, STUDIED, load_experiment
from fedjax_sel.papers.lefl.cells import LEFL as LEFL_NAME
from fedjax_sel.papers.lefl.latent import (
    CORRELATED,
    compare_all_layers,
    compare_distances,
    compare_layers,
    correlate_distances,
    measure_distances,
    observe_all_layers,
    observe_last_layer,
)
from fedjax_sel.papers.settings import merge_settings
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import PAD_CLIENT, Context, PRNGKey, StrategyState

SEEN = 100
"""Number of test examples on which models are compared."""

DRAWN = {"smoke": 50, "small": 500, "medium": 500, "full": 500}
"""Number of cohorts drawn to measure their labels."""

FEW = 50
"""With up to this many clients, all layers of all pairs are compared."""


def study_clusters(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns cluster sizes, latent distances, and the divergence of cohorts' labels from all labels, by experiment."""
    return {
        name: examine_clusters(merge_settings(config, METHODS[LEFL_NAME]), scale, seeds)
        for name, config in list_studied(scale).items()
    }


def list_studied(scale: str) -> dict[str, dict[str, Any]]:
    """Returns the experiments whose clusters are examined."""
    return {**EXPERIMENTS[scale], **STUDIED[scale]}


NUMBERS = ("within", "random", "rand", *CORRELATED)
"""Numbers of a seed, except the relative entropies."""

GROUPS = {"name": "label_groups", "clients": 24, "labels": 2}
ON_GROUPS = {**METHODS[LEFL_NAME], "partition": GROUPS, "cohort_size": 5, "rounds": 10}
PLANTED_CIFAR = {
    "CIFAR-10 (12,000 examples), ResNet-20": load_experiment("cifar10_lefl", {"data": {"num_examples": 12_000}})
}
ABLATION: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {"digits, 64-32-10": EXPERIMENTS["smoke"]["digits, labeldir"]},
    "small": {"Fashion-MNIST, 784-128-10": load_experiment("fashion_mnist_lefl"), **PLANTED_CIFAR},
    "medium": PLANTED_CIFAR,
    "full": {
        "Fashion-MNIST, 784-128-10": load_experiment("fashion_mnist_lefl"),
        "CIFAR-10, ResNet-20": load_experiment("cifar10_lefl"),
    },
}
"""Settings of the source's section V, to which `ON_GROUPS` is applied."""


def study_ablation(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns the results of the source's section V: 24 clients in five groups that each share a pair of labels."""
    return {
        name: examine_clusters(merge_settings(config, ON_GROUPS), scale, seeds, truth=LabelGroups(24, 2))
        for name, config in ABLATION[scale].items()
    }


def examine_clusters(
    config: dict[str, Any], scale: str, seeds: Sequence[int], truth: LabelGroups | None = None
) -> dict[str, Any]:
    """Returns the clusters of one experiment.

    Args:
      config: of the experiment, with LEFL.
      scale: sets how many cohorts are drawn.
      seeds: of the runs.
      truth: groups of clients that should be found; None: there are no groups.
    """
    rounds = 10 if truth is not None and scale != "smoke" else DRAWN[scale]
    from sklearn.metrics import adjusted_rand_score  # late: listing papers need not wait for it

    run = build(resolve({**config, "seeds": list(seeds)}))
    per_seed, first = [], {}
    for seed, data in zip(run.seeds, run.data.draws(run.seeds), strict=True):
        selector, ctx, log_p, latent, kernels = observe_pre_phase(run, data, seed)
        kl = selector.distances(log_p)
        cluster = cluster_clients(kl, selector.strata(ctx.num_clients))
        labels = data.count_labels()
        far = measure_distances(latent)
        row: dict[str, Any] = {"sizes": np.sort(np.bincount(cluster))[::-1], **compare_distances(far, cluster, seed)}
        transposed = cluster_clients(kl.T, selector.strata(ctx.num_clients))
        row |= correlate_distances(kl, far)
        row |= {
            name: cohort_divergence(chosen[None], labels[None])[0]
            for name, chosen in draw_cohorts(selector, cluster, transposed, labels, ctx, seed, rounds).items()
        }
        if truth is not None:
            row["rand"] = adjusted_rand_score(truth.groups(data.classes), cluster)
        if data.num_clients <= FEW:
            row["cka"] = compare_layers(kernels, cluster)
        if not first and data.num_clients <= FEW:
            first = {"kl": kl, "cluster": cluster, "heat": compare_all_layers(kernels, cluster)}
        per_seed.append(row)
    names = [name for name in per_seed[0] if name.startswith("entropy")]
    return {
        "clients": ctx.num_clients,
        "m": ctx.m,
        "sizes": [row["sizes"] for row in per_seed],
        **{name: [float(row[name]) for row in per_seed] for name in NUMBERS if name in per_seed[0]},
        **{name: [float(row[name].mean()) for row in per_seed] for name in names},
        "curves": {name: np.mean([row[name] for row in per_seed], axis=0) for name in names},
        **({"cka": np.array([row["cka"] for row in per_seed])} if "cka" in per_seed[0] else {}),
        **first,
    }


def observe_pre_phase(
    run: Run, data: FederatedData, seed: int
) -> tuple[LEFL, Context, Float[Array, "N M C"], Float[np.ndarray, "N b d"], Float[np.ndarray, "N l b b"]]:
    """Returns LEFL, its context, soft labels of public examples, and models' representations of test examples."""
    experiment, key = run.experiment, make_key(seed)
    selector = experiment.client_selection
    assert isinstance(selector, LEFL)
    assert data.public_x is not None
    variables = experiment.task.init(key_for(key, Purpose.MODEL), data.like)
    layout = Layout(clients=1, mesh=(1, jax.local_device_count()))
    own, ctx, host = selector_inputs(experiment, data, key, variables, layout)
    examples = {"public": np.asarray(data.public_x), "seen": np.asarray(data.test_x[:SEEN])}
    read = observe_all_layers if data.num_clients <= FEW else observe_last_layer
    log_p, latent, kernels = selector.run_pre_phase(read, examples, jnp.arange(data.num_clients), own, ctx, host)
    return selector, ctx, log_p, np.asarray(latent), np.asarray(kernels)


def draw_cohorts(
    selector: LEFL,
    cluster: Int[np.ndarray, "N"],
    transposed: Int[np.ndarray, "N"],
    labels: Int[np.ndarray, "N C"],
    ctx: Context,
    seed: int,
    rounds: int,
) -> dict[str, Int[np.ndarray, "T m"]]:
    """Returns cohorts of `rounds` rounds, each with `m` clients: stratified by several clusterings, and uniform.

    They are stratified by LEFL's clusters, with proportional quotas and with at least one client of each; by the
    clusters of the other direction of the divergence, with proportional quotas; and by clusters of the true labels,
    with at least one client of each.
    """
    proportional, each = replace(selector, allocation="proportional"), replace(selector, allocation="hamilton")
    shares = labels / np.maximum(labels.sum(1, keepdims=True), 1)
    by_labels = cluster_clients(shares, selector.strata(ctx.num_clients))
    selections: dict[str, tuple[ClientSelector, Any]] = {
        "entropy_stratified": (each, jnp.asarray(cluster, jnp.int32)),
        "entropy_proportional": (proportional, jnp.asarray(cluster, jnp.int32)),
        "entropy_transposed": (proportional, jnp.asarray(transposed, jnp.int32)),
        "entropy_by_labels": (each, jnp.asarray(by_labels, jnp.int32)),
        "entropy_random": (Uniform(), ()),
    }
    keys = jax.random.split(make_key(seed), rounds)
    return {name: np.asarray(draw(chosen, state, ctx, keys)) for name, (chosen, state) in selections.items()}


@jit()
def draw(selector: ClientSelector, state: StrategyState, ctx: Context, keys: PRNGKey) -> Int[Array, "T m"]:
    """Returns a cohort for each key, `PAD_CLIENT` for an empty slot; compiled once for all seeds."""
    cohort = jax.vmap(lambda key: selector.select(key, state, ctx))(keys)
    return jnp.where(cohort.mask, cohort.client, PAD_CLIENT)
