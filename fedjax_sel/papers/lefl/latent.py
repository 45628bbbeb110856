"""What clients' models make of the same examples, and how alike that is within and between clusters."""

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
"""Random clusters of the same sizes."""


def observe_last_layer(task: Task, variables: Variables, examples: dict[str, Rows]) -> tuple[Array, Array, Array]:
    """Returns soft labels of the public examples, and the last layer's input for the others."""
    latent, _ = record_layers(task, variables, examples["seen"])
    return predict_log_probs(task, variables, examples["public"]), latent, jnp.zeros(1)


def observe_all_layers(task: Task, variables: Variables, examples: dict[str, Rows]) -> tuple[Array, Array, Array]:
    """Returns what `observe_last_layer` does, and of every layer the products of all pairs of examples."""
    latent, layers = record_layers(task, variables, examples["seen"])
    flat = [(layer - layer.mean(0, keepdims=True)).reshape(len(layer), -1) for layer in layers]
    return predict_log_probs(task, variables, examples["public"]), latent, jnp.stack([x @ x.T for x in flat])


def record_layers(task: Task, variables: Variables, x: Rows) -> tuple[Float[Array, "b d"], list[Array]]:
    """Returns the input of the last dense layer, and the outputs of all convolutions and dense layers in order."""
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
    """Returns the mean Euclidean distance over examples of what each pair of models makes of them."""
    out = np.zeros((len(latent), len(latent)))
    for row in range(latent.shape[1]):
        x = latent[:, row].astype(np.float64)
        square = (x**2).sum(1)
        out += np.sqrt(np.maximum(square[:, None] + square - 2 * x @ x.T, 0))
    return out / latent.shape[1]


def compare_distances(far: Float[np.ndarray, "N N"], cluster: Int[np.ndarray, "N"], seed: int) -> dict[str, float]:
    """Returns the mean distance of pairs in one cluster, and in random clusters of the same sizes."""
    rng = np.random.default_rng((0xC1, seed))
    shuffled = [average_within(far, rng.permutation(cluster)) for _ in range(SHUFFLES)]
    return {"within": average_within(far, cluster), "random": float(np.mean(shuffled))}


CORRELATED = ("pairs", "rows")
"""What is correlated with distance in latent space: conjectures 1 and 2."""


def correlate_distances(kl: Float[np.ndarray, "N N"], far: Float[np.ndarray, "N N"]) -> dict[str, float]:
    """Returns Spearman's rank correlation over pairs of clients with their distance in latent space.

    Of the symmetric divergence `KL_ij + KL_ji` (`pairs`, conjecture 1), and of the distance between their rows of the
    divergence, by which KMeans clusters them (`rows`, conjecture 2).

    Args:
      kl: divergences.
      far: distances.
    """
    upper = np.triu_indices(len(kl), 1)
    rows = scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(kl))
    return {
        name: float(np.asarray(scipy.stats.spearmanr(value[upper], far[upper])[0]))
        for name, value in (("pairs", kl + kl.T), ("rows", rows))
    }


def average_within(value: Float[np.ndarray, "N N"], cluster: Int[np.ndarray, "N"]) -> float:
    """Returns the mean over pairs of two clients of one cluster."""
    return float(value[mark_pairs(cluster, True)].mean())


def mark_pairs(cluster: Int[np.ndarray, "N"], together: bool) -> np.ndarray:
    """Returns which pairs are of one cluster, or of two, each pair once."""
    return np.triu((cluster[:, None] == cluster) == together, 1)


def compare_layers(kernels: Float[np.ndarray, "N l b b"], cluster: Int[np.ndarray, "N"]) -> Float[np.ndarray, "2 l"]:
    """Returns the mean CKA of the same layer in pairs of one cluster, and of two."""
    alike = [kernel_cka(kernels[:, k]) for k in range(kernels.shape[1])]
    return np.array([[value[mark_pairs(cluster, together)].mean() for value in alike] for together in (True, False)])


def compare_all_layers(
    kernels: Float[np.ndarray, "N l b b"], cluster: Int[np.ndarray, "N"], most: int = 30
) -> np.ndarray:
    """Returns the CKA of all layers with all, mean over up to `most` pairs of one cluster, and of two; `[2, l, l]`."""
    rng, out = np.random.default_rng(0), []
    for together in (True, False):
        some = rng.permutation(np.argwhere(mark_pairs(cluster, together)))[:most]
        out.append(np.mean([kernel_cka(kernels[i], kernels[j]) for i, j in some], axis=0))
    return np.array(out)
