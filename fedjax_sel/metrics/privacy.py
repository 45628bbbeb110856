"""Differential privacy of noisy sums, by the accountant of `dp-accounting` (extra `dp`)."""

from __future__ import annotations

import importlib
from typing import Any

from fedjax_sel.catalog import check_name
from fedjax_sel.pytree import Range, is_real, is_whole

SAMPLINGS = ("poisson", "fixed")
"""Ways to draw the clients of a round: each independently, or a fixed number without replacement."""

__all__ = ["epsilon"]


def epsilon(
    noise_multiplier: float, rounds: int, *, share: float | tuple[int, int], delta: float, sampling: str = "poisson"
) -> float:
    """Returns `ε` of the (ε, δ)-differential privacy of `rounds` noisy sums over sampled clients (or examples).

    For a fixed number of clients, the result is at most the `ε` of full participation, which the bound for samples can
    exceed.

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
      ValueError: the sampling is unknown, the share does not fit it, or a number is out of range.

    Source: Mironov et al., "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019,
    https://arxiv.org/abs/1908.10530; Wang et al., "Subsampled Rényi Differential Privacy and Analytical Moments
    Accountant", 2019, https://arxiv.org/abs/1808.00087.
    """
    check_name("sampling", sampling, SAMPLINGS)
    if isinstance(share, tuple) != (sampling == "fixed"):
        wanted = "(clients drawn, clients in all)" if sampling == "fixed" else "a chance in (0, 1]"
        raise ValueError(f"epsilon: share is {share!r}; with sampling={sampling!r} it must be {wanted}")
    drawn, clients = share if isinstance(share, tuple) else (share, 1)
    counted = sampling == "poisson" or (is_whole(drawn) and is_whole(clients))
    if not (counted and is_real(drawn) and 0 < drawn <= clients):
        wanted = "whole numbers, the first at least 1 and at most the second" if sampling == "fixed" else "in (0, 1]"
        raise ValueError(f"epsilon: share is {share!r}; it must be {wanted}")
    if not (is_whole(rounds) and rounds >= 1):
        raise ValueError(f"epsilon: rounds is {rounds!r}; it must be a whole number, at least 1")
    Range(low=0).check("epsilon: noise_multiplier", noise_multiplier)
    Range(above=0, below=1).check("epsilon: delta", delta)
    try:
        dp_accounting: Any = importlib.import_module("dp_accounting")  # late: an extra
        rdp: Any = importlib.import_module("dp_accounting.rdp")
    except ImportError as error:
        raise ImportError("epsilon needs dp-accounting: pip install 'fedjax-sel[dp]'") from error
    if noise_multiplier == 0:
        return float("inf")
    relations = dp_accounting.NeighboringRelation

    def account(event: Any, relation: Any) -> float:
        accountant = rdp.RdpAccountant(neighboring_relation=relation)
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
        return float(accountant.get_epsilon(delta))

    if sampling == "poisson":
        whole = dp_accounting.GaussianDpEvent(noise_multiplier)
        return account(dp_accounting.PoissonSampledDpEvent(share, whole), relations.ADD_OR_REMOVE_ONE)
    whole = dp_accounting.GaussianDpEvent(noise_multiplier / 2)  # a replacement moves the sum by 2 S
    sampled = dp_accounting.SampledWithoutReplacementDpEvent(clients, drawn, whole)
    return min(account(sampled, relations.REPLACE_ONE), account(whole, relations.REPLACE_ONE))
