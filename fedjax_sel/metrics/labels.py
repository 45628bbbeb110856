"""Divergence of a cohort's label distribution from that of all clients."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def label_shares(
    y: Int[np.ndarray, "n"], client: Int[np.ndarray, "n"], clients: int, classes: int
) -> Float[np.ndarray, "N C"]:
    """Returns the share of each class among each client's examples; examples of client -1 do not count.

    >>> label_shares(np.array([0, 1, 1, 0]), np.array([0, 0, 1, -1]), 2, 2)
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    count = np.zeros((clients, classes))
    mine = client >= 0
    np.add.at(count, (client[mine], y[mine]), 1)
    return count / np.maximum(count.sum(1, keepdims=True), 1)


def cohort_divergence(
    selections: Int[np.ndarray, "R T m"],
    shares: Float[np.ndarray, "R N C"],
    target: Float[np.ndarray, "*R C"],
    examples: Int[np.ndarray, "R N"] | None = None,
) -> Float[np.ndarray, "R T"]:
    """Returns the relative entropy `KL(q_S ‖ p)`, in nats, of each cohort's labels from those of all examples.

    `q_S` is the plain mean of the members' shares, as in LEFL's code, or their mean weighted by examples: the label
    distribution of the pooled examples. A class that the cohort lacks adds 0, and a member without examples does not
    count. The result is NaN if no client was selected, and infinite if the cohort has a class that `target` lacks.

    Args:
      selections: cohorts; -1: empty slot.
      shares: of each class for each client, by seed.
      target: `p`, for all seeds or by seed.
      examples: of each client; None: the plain mean.

    Source: Abebe, Munoz and Jannesari, "LEFL: Low Entropy Client Sampling in Federated Learning", 2023,
    https://arxiv.org/abs/2312.17430, equation (2).

    >>> shares = np.array([[[1.0, 0.0], [0.0, 1.0]]])  # two clients of one class each
    >>> cohort_divergence(np.array([[[0, 1], [0, -1]]]), shares, np.array([0.5, 0.5])).round(4)
    array([[0.    , 0.6931]])
    """
    out = np.full(selections.shape[:2], np.nan)
    goals = np.broadcast_to(target, (len(selections), np.shape(target)[-1]))
    for run, (cohorts, share, goal) in enumerate(zip(selections, shares, goals, strict=True)):
        has_any = share.sum(axis=1) > 0
        weight = np.where(has_any, 1.0 if examples is None else np.asarray(examples[run], np.float64), 0.0)
        member = (cohorts >= 0) * weight[cohorts]
        total = member.sum(1)
        mix = np.einsum("tm,tmc->tc", member, share[cohorts]) / np.where(total > 0, total, 1)[:, None]
        with np.errstate(divide="ignore"):
            log_ratio = np.log(np.where(mix > 0, mix, 1)) - np.log(np.where(mix > 0, goal, 1))
        out[run] = np.where(total > 0, np.sum(mix * log_ratio, axis=1), np.nan)
    return out
