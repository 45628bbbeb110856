"""What no run of the LEFL reproduction gives: clusters, what their members have learnt, whom strata would draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from sklearn.metrics import adjusted_rand_score

from fedjax_sel import config as configuration
from fedjax_sel.client_selection.lefl import LEFL, clustered, predictions
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.config.build import Run
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.data.partition.label_groups import LabelGroups
from fedjax_sel.engine.init import beginning
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.metrics.cka import kernel_cka
from fedjax_sel.metrics.labels import cohort_divergence, label_shares
from fedjax_sel.papers.lefl.cells import (
    BASE,
    DENSE,
    EXPERIMENTS,
    FASHION,
    HIGH,
    METHODS,
    MNIST,
    RATES,
    RESNET,
    shorten_pre_phase,
)
from fedjax_sel.papers.lefl.cells import ROWS as PUBLIC_ROWS
from fedjax_sel.papers.settings import merge_settings
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.pytree import jit
from fedjax_sel.task import Task
from fedjax_sel.types import Context, PRNGKey, Rows, StrategyState, Variables

SEEN = 100
"""Test rows on which models are compared."""

DRAWN = {"smoke": 50, "small": 500, "full": 500}
"""Cohorts drawn to measure their labels."""

FEW = 50
"""Up to so many clients, all layers of all pairs are compared."""

SHUFFLES = 20
"""Random clusters of the same sizes."""


def clusters(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Of every experiment: sizes of clusters, distances in latent space, and how far cohorts' labels are from all."""
    whole = {
        name: merge_settings(merge_settings(BASE, config), shorten_pre_phase(name))
        for name, config in EXPERIMENTS[scale].items()
    }
    return {name: study_clusters(config, scale, seeds) for name, config in whole.items()}


GROUPS = {"name": "label_groups", "clients": 24, "labels": 2}
ABLATION: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "digits, 64-32-10": {
            **EXPERIMENTS["smoke"]["digits, labeldir"],
            "partition": GROUPS,
            "cohort_size": 5,
        }
    },
    "small": {
        "Fashion-MNIST, 784-128-10": {**DENSE, "data": FASHION, "public": {**MNIST, "rows": PUBLIC_ROWS}},
        "CIFAR-10 (1200 rows), ResNet-20": {
            **RESNET,
            "data": {**RESNET["data"], "rows": 1200},
            "local_training": {"batch_size": 16},
            "public": {**RESNET["public"], "rows": 100},
        },
    },
    "full": {
        "Fashion-MNIST, 784-128-10": {**DENSE, "data": FASHION, "public": {**MNIST, "rows": PUBLIC_ROWS}},
        "CIFAR-10, ResNet-20": RESNET,
    },
}


def ablation(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """The source's section V: 24 clients of which five groups share a pair of labels."""
    found = {}
    for name, config in ABLATION[scale].items():
        config = merge_settings(
            merge_settings(BASE, config), {**METHODS["LEFL"], "partition": GROUPS, "cohort_size": 5, "rounds": 10}
        )
        some = seeds[:2] if config["model"]["name"] == "resnet" and scale == "small" else seeds
        found[name] = study_clusters(config, scale, some, truth=LabelGroups(24, 2))
    return found


def study_clusters(
    config: dict[str, Any], scale: str, seeds: Sequence[int], truth: LabelGroups | None = None
) -> dict[str, Any]:
    """One experiment's clusters.

    Args:
      config: of the experiment, with LEFL.
      scale: says how many cohorts are drawn.
      seeds: of the runs.
      truth: where clients are in groups that should be found.
    """
    rounds = 10 if truth is not None and scale != "smoke" else DRAWN[scale]
    config = merge_settings(merge_settings(config, RATES[HIGH]), {"seeds": list(seeds)})
    run = configuration.build(config)
    per_seed, first = [], {}
    for seed, data in zip(run.seeds, run.data.draws(run.seeds), strict=True):
        selector, ctx, log_p, latent, kernels = observe_pre_phase(run, data, seed)
        kl = selector.distances(log_p)
        cluster = clustered(kl, selector.strata(ctx.num_clients))
        y = np.asarray(data.y)[np.asarray(data.order)]
        shares = label_shares(y, np.asarray(data.owner), data.num_clients, data.classes)
        everybody = np.bincount(y, minlength=data.classes) / len(y)
        far = measure_distances(latent)
        row: dict[str, Any] = {"sizes": np.sort(np.bincount(cluster))[::-1], **compare_distances(far, cluster, seed)}
        row |= {
            name: cohort_divergence(chosen[None], shares[None], everybody)[0]
            for name, chosen in draw_cohorts(selector, cluster, shares, ctx, seed, rounds).items()
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
        "cohort_size": ctx.m,
        "sizes": [row["sizes"] for row in per_seed],
        **{
            name: [float(row[name]) for row in per_seed] for name in ("within", "random", "rand") if name in per_seed[0]
        },
        **{name: [float(row[name].mean()) for row in per_seed] for name in names},
        "curves": {name: np.mean([row[name] for row in per_seed], axis=0) for name in names},
        **({"cka": np.array([row["cka"] for row in per_seed])} if "cka" in per_seed[0] else {}),
        **first,
    }


def observe_pre_phase(
    run: Run, data: FederatedData, seed: int
) -> tuple[LEFL, Context, Float[Array, "N M C"], Float[np.ndarray, "N b d"], Float[np.ndarray, "N l b b"]]:
    """LEFL, what it knows, soft labels of the public rows, and what all clients' models make of test rows."""
    experiment, key = run.experiment, jax.random.key(seed)
    selector = experiment.client_selection
    assert isinstance(selector, LEFL)
    assert data.public_x is not None
    variables = experiment.task.init(key_for(key, Purpose.MODEL), data.x)
    own, ctx, host = beginning(experiment, data, key, variables, 1)
    few = data.num_clients <= FEW
    rows = {"public": np.asarray(data.public_x), "seen": np.asarray(data.test_x[:SEEN])}
    look = observe_all_layers if few else observe_last_layer
    log_p, latent, kernels = selector.after_pre_phase(look, rows, jnp.arange(data.num_clients), own, ctx, host)
    return selector, ctx, log_p, np.asarray(latent), np.asarray(kernels)


def observe_last_layer(task: Task, variables: Variables, rows: dict[str, Rows]) -> tuple[Array, Array, Array]:
    """Soft labels of the public rows, and the last layer's input for the others."""
    latent, _ = record_layers(task, variables, rows["seen"])
    return predictions(task, variables, rows["public"]), latent, jnp.zeros(1)


def observe_all_layers(task: Task, variables: Variables, rows: dict[str, Rows]) -> tuple[Array, Array, Array]:
    """As `last_layer`, and of every layer the products of all pairs of rows."""
    latent, layers = record_layers(task, variables, rows["seen"])
    flat = [(layer - layer.mean(0, keepdims=True)).reshape(len(layer), -1) for layer in layers]
    return predictions(task, variables, rows["public"]), latent, jnp.stack([x @ x.T for x in flat])


def record_layers(task: Task, variables: Variables, x: Rows) -> tuple[Float[Array, "b d"], list[Array]]:
    """The input of the last dense layer, and the outputs of all convolutions and dense layers, in their order."""
    inputs, outputs = [], []

    def record(layer, args, kwargs, context):
        out = layer(*args, **kwargs)
        if context.method_name == "__call__" and isinstance(context.module, nn.Conv | nn.Dense):
            inputs.append(args[0])
            outputs.append(out)
        return out

    with nn.intercept_methods(record):
        task.logits(variables, x)
    return inputs[-1], outputs


def measure_distances(latent: Float[np.ndarray, "N b d"]) -> Float[np.ndarray, "N N"]:
    """Mean Euclidean distance over rows of what each pair of models makes of them."""
    out = np.zeros((len(latent), len(latent)))
    for row in range(latent.shape[1]):
        x = latent[:, row].astype(np.float64)
        square = (x**2).sum(1)
        out += np.sqrt(np.maximum(square[:, None] + square - 2 * x @ x.T, 0))
    return out / latent.shape[1]


def compare_distances(far: Float[np.ndarray, "N N"], cluster: Int[np.ndarray, "N"], seed: int) -> dict[str, float]:
    """Mean distance of pairs in one cluster, and in random clusters of the same sizes."""
    rng = np.random.default_rng((0xC1, seed))
    shuffled = [average_within(far, rng.permutation(cluster)) for _ in range(SHUFFLES)]
    return {"within": average_within(far, cluster), "random": float(np.mean(shuffled))}


def average_within(value: Float[np.ndarray, "N N"], cluster: Int[np.ndarray, "N"]) -> float:
    """Mean over pairs of two clients of one cluster."""
    return float(value[mark_pairs(cluster, True)].mean())


def mark_pairs(cluster: Int[np.ndarray, "N"], together: bool) -> np.ndarray:
    """Which pairs are of one cluster, or of two, each pair once."""
    return np.triu((cluster[:, None] == cluster) == together, 1)


def draw_cohorts(
    selector: LEFL,
    cluster: Int[np.ndarray, "N"],
    shares: Float[np.ndarray, "N C"],
    ctx: Context,
    seed: int,
    rounds: int,
) -> dict[str, Int[np.ndarray, "T m"]]:
    """Cohorts of so many rounds: stratified by LEFL's clusters, by clusters of the true labels, and uniform."""
    by_labels = clustered(shares, selector.strata(ctx.num_clients))
    ways: dict[str, tuple[ClientSelector, Any]] = {
        "entropy_stratified": (selector, jnp.asarray(cluster, jnp.int32)),
        "entropy_by_labels": (selector, jnp.asarray(by_labels, jnp.int32)),
        "entropy_random": (Uniform(), ()),
    }
    keys = jax.random.split(jax.random.key(seed), rounds)
    return {name: np.asarray(draw_with(way, state, ctx, keys)) for name, (way, state) in ways.items()}


@jit()
def draw_with(selector: ClientSelector, state: StrategyState, ctx: Context, keys: PRNGKey) -> Int[Array, "T m"]:
    """A cohort for each key; -1 where a slot is empty. Compiled once for all seeds."""
    cohort = jax.vmap(lambda key: selector.select(key, state, ctx))(keys)
    return jnp.where(cohort.mask, cohort.client, -1)


def compare_layers(kernels: Float[np.ndarray, "N l b b"], cluster: Int[np.ndarray, "N"]) -> Float[np.ndarray, "2 l"]:
    """Mean CKA of the same layer in pairs of one cluster, and of two."""
    alike = [kernel_cka(kernels[:, k]) for k in range(kernels.shape[1])]
    return np.array([[value[mark_pairs(cluster, together)].mean() for value in alike] for together in (True, False)])


def compare_all_layers(
    kernels: Float[np.ndarray, "N l b b"], cluster: Int[np.ndarray, "N"], most: int = 30
) -> np.ndarray:
    """CKA of every layer with every layer, mean over up to `most` pairs of one cluster, and of two; `[2, l, l]`."""
    rng, out = np.random.default_rng(0), []
    for together in (True, False):
        some = rng.permutation(np.argwhere(mark_pairs(cluster, together)))[:most]
        out.append(np.mean([kernel_cka(kernels[i], kernels[j]) for i, j in some], axis=0))
    return np.array(out)
