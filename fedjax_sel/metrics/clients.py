"""How unevenly a model serves its clients: the mean over clients, the worst tenth of them, and their spread."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def mean_over_clients(values: Float[np.ndarray, "... N"]) -> Float[np.ndarray, "..."]:
    """Returns the plain mean over clients, ignoring values that are not finite; NaN without any finite value.

    >>> mean_over_clients(np.array([0.5, np.nan, 1.0])).item()
    0.75
    """
    count = np.isfinite(values).sum(-1)
    total = np.where(np.isfinite(values), values, 0).sum(-1, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def worst_decile(values: Float[np.ndarray, "... N"], *, higher_is_better: bool) -> Float[np.ndarray, "..."]:
    """Returns the mean over the worst tenth of the clients with finite values, rounded up to whole clients.

    The authors' code rounds down.

    Args:
      values: of each client.
      higher_is_better: whether the lowest values are the worst.

    Source: Li, Sanjabi, Beirami and Smith, "Fair Resource Allocation in Federated Learning", 2020,
    https://arxiv.org/abs/1905.10497, section 4 (the worst 10 % of the clients).

    >>> worst_decile(np.arange(20) / 20, higher_is_better=True).item()
    0.025
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    order = np.sort(finite if higher_is_better else -finite, axis=-1)  # NaN comes last
    count = np.isfinite(values).sum(-1)
    worst = np.ceil(count / 10 - 1e-9).astype(int)
    among = np.arange(values.shape[-1]) < worst[..., None]
    total = np.where(among, order, 0).sum(-1, dtype=np.float64)
    found = np.where(worst > 0, total / np.maximum(worst, 1), np.nan)
    return np.asarray(found if higher_is_better else -found)


def spread_over_clients(values: Float[np.ndarray, "... N"]) -> Float[np.ndarray, "..."]:
    """Returns the standard deviation over clients (divided by their number), ignoring values that are not finite.

    >>> spread_over_clients(np.array([0.0, 1.0, np.nan])).item()
    0.5
    """
    off = np.asarray(values, np.float64) - mean_over_clients(values)[..., None]
    return np.asarray(np.sqrt(mean_over_clients(off**2)))
