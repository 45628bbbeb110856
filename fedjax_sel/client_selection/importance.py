"""Importance sampling of clients by the norms of their gradients."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._unbiased import draw_unbiased, normalize, target_weights
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["Importance"]


class Importance(ClientSelector):
    """`m` clients drawn in proportion to `p_i ‖∇F_i(w)‖`, weighted so that the sum of their updates is unbiased.

    `p_i` is the client's weight in full participation. Draws are with replacement, with weight `p_i / (m q_i)`; or
    without, with weight `p_i / π_i`, where the inclusion probability `π_i` is proportional to the importance and at
    most 1. These probabilities minimise the variance of `Σ weight_i ∇F_i(w)` with replacement; without, they would if
    clients were drawn independently, while here exactly `m` are. Use the aggregation's
    `weighting: cohort`: the weights are complete, and sum to 1 in expectation only.

    Every client receives the global model in every round, passes all its examples forward and backward, and sends one
    number. A client whose gradient is 0, or whose norm is not finite, is not drawn unless `uniform` is above 0.

    Attributes:
      uniform: share of the probabilities that is proportional to `p_i` alone, which bounds the weights by `1/uniform`.
      weighting: `p_i` in proportion to the clients' `"size"`, or equal, `"client"`, as in the source.
      noise: whether the importance is `p_i sqrt(‖∇F_i(w)‖² + σ_i²)`, with the root mean square norm of minibatch
        gradients instead of the norm of the full gradient (the source's probabilities have a term for each).
      replacement: whether a client can be drawn more than once; the source draws without.
      batch_size: of the minibatches.

    Source: Rizk, Vlaski and Sayed, "Optimal Importance Sampling for Federated Learning", 2021,
    https://arxiv.org/abs/2010.13600; sampling without replacement with these probabilities: Chen, Horváth and
    Richtárik, 2022, https://arxiv.org/abs/2010.13723, equation (7).

    >>> Importance().signals().before
    {'gradient_norm': GradientNorm()}
    """

    uniform: Scalar = param(default=0.0, low=0, high=1)
    weighting: str = static(default="size", choices=["size", "client"])
    noise: bool = static(default=False)
    ordered: ClassVar[bool] = True
    replacement: bool = static(default=False)
    batch_size: int = static(default=64, low=1)

    @property
    def counts_examples(self) -> bool:
        """Returns whether the weights are by size."""
        return self.weighting == "size"

    def signals(self) -> Signals:
        """Returns the norms of the clients' gradients, before training."""
        norm = signals.GradientNoise(self.batch_size, around="zero") if self.noise else signals.GradientNorm()
        return Signals(before={"gradient_norm": norm})

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, gradient_norm: Float[Array, "N"]) -> Cohort:
        """Returns the draws; if all gradients are 0, they are by `p`."""
        p = target_weights(self.weighting, ctx)
        importance = normalize(p * jnp.where((p > 0) & jnp.isfinite(gradient_norm), gradient_norm, 0.0))
        importance = jnp.where(importance.sum() > 0, importance, p)
        chance = self.uniform * p + (1 - self.uniform) * importance
        return draw_unbiased(key, chance, p, ctx.m, replacement=self.replacement)
