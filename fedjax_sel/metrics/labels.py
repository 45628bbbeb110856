"""Divergence of a cohort's label distribution from that of all clients."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def cohort_divergence(
    selections: Int[np.ndarray, "R T m"], labels: Int[np.ndarray, "R N C"]
) -> Float[np.ndarray, "R T"]:
    """Returns the relative entropy `KL(q_S ‖ p)`, in nats, of each cohort's labels from those of all clients.

    `q_S` is the label distribution of the members' pooled examples, and `p` that of all clients'. A class that the
    cohort lacks adds 0. The result is NaN if the cohort has no examples.

    Args:
      selections: cohorts; -1: empty slot.
      labels: the number of each client's examples in each class, by seed.

    Source: Abebe, Munoz and Jannesari, "LEFL: Low Entropy Client Sampling in Federated Learning", 2023,
    https://arxiv.org/abs/2312.17430, equation (2).

    >>> labels = np.array([[[10, 0], [0, 10]]])  # two clients of one class each
    >>> cohort_divergence(np.array([[[0, 1], [0, -1]]]), labels).round(4)
    array([[0.    , 0.6931]])
    """
    out = np.empty(selections.shape[:2])
    for run, (cohorts, count) in enumerate(zip(selections, labels, strict=True)):
        pooled = np.where((cohorts >= 0)[..., None], count[cohorts], 0).sum(1)
        total = pooled.sum(1)
        mix = pooled / np.maximum(total, 1)[:, None]
        everybody = count.sum(0) / max(count.sum(), 1)
        log_ratio = np.log(np.where(mix > 0, mix, 1)) - np.log(np.where(mix > 0, everybody, 1))
        out[run] = np.where(total > 0, np.sum(mix * log_ratio, axis=1), np.nan)
    return out
