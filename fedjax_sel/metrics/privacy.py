"""Differential privacy of noisy sums, by the accountant of `dp-accounting` (extra `dp`)."""

from __future__ import annotations

import importlib
from typing import Any

from fedjax_sel.catalog import check_name

SAMPLINGS = ("poisson", "fixed")
"""Ways to draw the clients of a round: each independently, or a fixed number without replacement."""

__all__ = ["epsilon"]


def epsilon(
    noise_multiplier: float, rounds: int, *, share: float | tuple[int, int], delta: float, sampling: str = "poisson"
) -> float:
    """Returns `ε` of the (ε, δ)-differential privacy of `rounds` noisy sums over sampled clients (or examples).

    With `"poisson"`, neighbouring data sets differ in the presence of one client, which moves the sum by at most its
    clip. With `"fixed"`, they differ in one client that is replaced, which moves the sum by at most twice its clip.

    Args:
      noise_multiplier: standard deviation of the noise divided by the clip.
      rounds: number of sums released.
      share: the probability that a client is drawn; for `"fixed"`, (clients drawn, clients in all).
      delta: `δ`.
      sampling: one of `SAMPLINGS`.

    Raises:
      ImportError: `dp-accounting` is not installed.
      ValueError: the sampling is unknown, or the share does not fit it.

    Source: Mironov et al., "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019,
    https://arxiv.org/abs/1908.10530; Wang et al., "Subsampled Rényi Differential Privacy and Analytical Moments
    Accountant", 2019, https://arxiv.org/abs/1808.00087.
    """
    check_name("sampling", sampling, SAMPLINGS)
    if isinstance(share, tuple) != (sampling == "fixed"):
        wanted = "(clients drawn, clients in all)" if sampling == "fixed" else "a chance in (0, 1]"
        raise ValueError(f"epsilon: share is {share!r}; with sampling={sampling!r} it must be {wanted}")
    try:
        dp_accounting: Any = importlib.import_module("dp_accounting")  # late: an extra
        rdp: Any = importlib.import_module("dp_accounting.rdp")
    except ImportError as error:
        raise ImportError("epsilon needs dp-accounting: pip install 'fedjax-sel[dp]'") from error
    if noise_multiplier == 0:
        return float("inf")
    relations = dp_accounting.NeighboringRelation
    if isinstance(share, tuple):
        drawn, clients = share
        event: Any = dp_accounting.GaussianDpEvent(noise_multiplier / 2)  # a replacement moves the sum by 2 S
        event, relation = dp_accounting.SampledWithoutReplacementDpEvent(clients, drawn, event), relations.REPLACE_ONE
    else:
        event = dp_accounting.PoissonSampledDpEvent(share, dp_accounting.GaussianDpEvent(noise_multiplier))
        relation = relations.ADD_OR_REMOVE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
    return float(accountant.get_epsilon(delta))
