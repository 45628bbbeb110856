"""Clients' representations of the same examples, and their similarity within and between clusters."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection.lefl import predict_log_probs
from fedjax_sel.metrics.cka import kernel_cka
from fedjax_sel.task import Task
from fedjax_sel.types import Rows, Variables

SHUFFLES = 20
"""Number of random clusterings with the same sizes."""


def observe_last_layer(task: Task, variables: Variables, examples: dict[str, Rows]) -> tuple[Array, Array, Array]:
    """Returns soft labels of the public examples, and the last layer's input for the other examples."""
    latent, _ = record_layers(task, variables, examples["seen"])
    return predict_log_probs(task, variables, examples["public"]), latent, jnp.zeros(1)


def observe_all_layers(task: Task, variables: Variables, examples: dict[str, Rows]) -> tuple[Array, Array, Array]:
    """Returns the same as `observe_last_layer`, and for every layer the inner products of all pairs of examples."""
    latent, layers = record_layers(task, variables, examples["seen"])
    flat = [centre(layer).reshape(len(layer), -1) for layer in layers]
    return predict_log_probs(task, variables, examples["public"]), latent, jnp.stack([x @ x.T for x in flat])


def centre(layer: Float[Array, "b *d"]) -> Float[Array, "b *d"]:
    """Returns a layer's outputs without their mean over examples: exactly 0 where all examples have the same."""
    return jnp.where((layer == layer[:1]).all(), 0, layer - layer.mean(0, keepdims=True))


def record_layers(task: Task, variables: Variables, x: Rows) -> tuple[Float[Array, "b d"], list[Array]]:
    """Returns the input of the last dense layer, and the outputs of all convolutional and dense layers in order."""
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
    """Returns the Euclidean distance between each pair of models' representations, averaged over examples."""
    out = np.zeros((len(latent), len(latent)))
    for row in range(latent.shape[1]):
        x = latent[:, row].astype(np.float64)
        square = (x**2).sum(1)
        out += np.sqrt(np.maximum(square[:, None] + square - 2 * x @ x.T, 0))
    return out / latent.shape[1]


def compare_distances(far: Float[np.ndarray, "N N"], cluster: Int[np.ndarray, "N"], seed: int) -> dict[str, float]:
    """Returns the mean distance of pairs within a cluster, and within random clusters of the same sizes."""
    rng = np.random.default_rng((0xC1, seed))
    shuffled = [average_within(far, rng.permutation(cluster)) for _ in range(SHUFFLES)]
    return {"within": average_within(far, cluster), "random": float(np.mean(shuffled))}


CORRELATED = ("pairs", "row_differences", "rows")
"""Quantities that are correlated with distance in latent space: of conjectures 1 and 2, and KMeans' own."""


def correlate_distances(kl: Float[np.ndarray, "N N"], far: Float[np.ndarray, "N N"]) -> dict[str, float]:
    """Returns Spearman's rank correlations, over pairs of clients, of three quantities with distance in latent space.

    These are the symmetric divergence `KL_ij + KL_ji` (`pairs`, conjecture 1), the mean absolute difference between the
    clients' rows of the divergence (`row_differences`, conjecture 2, equation 4), and the Euclidean distance between
    these rows, by which KMeans clusters the clients (`rows`).

    Args:
      kl: divergences.
      far: distances in latent space.
    """
    upper = np.triu_indices(len(kl), 1)
    compared = (
        (kl + kl.T)[upper],
        scipy.spatial.distance.pdist(kl, "cityblock") / len(kl),
        scipy.spatial.distance.pdist(kl),
    )
    return {
        name: float(np.asarray(scipy.stats.spearmanr(value, far[upper])[0]))
        for name, value in zip(CORRELATED, compared, strict=True)
    }


def average_within(value: Float[np.ndarray, "N N"], cluster: Int[np.ndarray, "N"]) -> float:
    """Returns the mean over pairs of clients in the same cluster."""
    return float(value[mark_pairs(cluster, True)].mean())


def mark_pairs(cluster: Int[np.ndarray, "N"], together: bool) -> np.ndarray:
    """Returns the mask of pairs in the same cluster, or in different ones, with each pair once."""
    return np.triu((cluster[:, None] == cluster) == together, 1)


def compare_layers(kernels: Float[np.ndarray, "N l b b"], cluster: Int[np.ndarray, "N"]) -> Float[np.ndarray, "2 l"]:
    """Returns the mean CKA of the same layer over pairs in the same cluster, and in different ones."""
    alike = [kernel_cka(kernels[:, k]) for k in range(kernels.shape[1])]
    return np.array([[value[mark_pairs(cluster, together)].mean() for value in alike] for together in (True, False)])


def compare_all_layers(
    kernels: Float[np.ndarray, "N l b b"], cluster: Int[np.ndarray, "N"], most: int = 30
) -> np.ndarray:
    """Returns the mean CKA of all pairs of layers over up to `most` pairs in one cluster, and in two; `[2, l, l]`."""
    rng, out = np.random.default_rng(0), []
    for together in (True, False):
        some = rng.permutation(np.argwhere(mark_pairs(cluster, together)))[:most]
        out.append(np.mean([kernel_cka(kernels[i], kernels[j]) for i, j in some], axis=0))
    return np.array(out)
