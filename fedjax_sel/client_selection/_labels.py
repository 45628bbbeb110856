"""Label distributions of clients: their entropy when pooled, their distances, and clusters of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float, Int, Num


def entropy_of(weight: Num[Array, "... C"]) -> Float[Array, "..."]:
    """Returns the entropy, in nats, of weights over classes, normalised to sum to 1; 0 where all weights are 0."""
    total = weight.sum(-1, keepdims=True)
    p = weight / jnp.where(total > 0, total, 1)
    return -xlogy(p, p).sum(-1)


def label_distances(counts: Int[np.ndarray, "N C"], distance: str) -> Float[np.ndarray, "N N"]:
    """Returns the distances between the clients' label distributions.

    Args:
      counts: examples of each client and class.
      distance: `"hellinger"`, `‖√p - √q‖ / √2`, or `"euclidean"`, `‖p - q‖`.
    """
    p = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    p = np.sqrt(p / 2) if distance == "hellinger" else p
    square = (p**2).sum(1)
    return np.sqrt(np.maximum(square[:, None] + square[None] - 2 * p @ p.T, 0.0))


def cluster_labels(counts: Int[np.ndarray, "N C"], eps: float | None, distance: str) -> Int[np.ndarray, "N"]:
    """Returns the cluster of each client by label distribution; a client outside all clusters gets its own.

    Runs OPTICS with at least two clients per cluster.

    Args:
      counts: examples of each client and class.
      eps: largest distance between neighbours, where clusters are cut as DBSCAN would; None: they are cut where
        reachability falls by 5 % (scikit-learn's `xi`).
      distance: as in `label_distances`.
    """
    from sklearn.cluster import OPTICS  # late: the import takes a second, which other selectors save

    apart = label_distances(counts, distance)
    np.fill_diagonal(apart, 0.0)
    if len(apart) < 2:
        return np.zeros(len(apart), np.int32)
    with np.errstate(divide="ignore", invalid="ignore"):  # ratios of reachabilities where clients are alike
        cut: dict[str, Any] = {"cluster_method": "xi"} if eps is None else {"cluster_method": "dbscan", "eps": eps}
        found = OPTICS(min_samples=2, metric="precomputed", **cut).fit_predict(apart)
    alone = found < 0
    return np.where(alone, found.max(initial=-1) + np.cumsum(alone), found).astype(np.int32)
