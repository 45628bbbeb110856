"""Optimal client sampling: only some members upload, with a probability that grows with the norm of their update."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.client_selection._unbiased import chances_of_inclusion, normalize
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["OptimalSampling"]

STEPS = 4
"""Message rounds of the approximation, as in the source's experiments."""


class OptimalSampling(ClientSelector):
    """A uniform cohort trains, and member `i` uploads with a probability `π_i` that grows with `u_i = w_i ‖Δ_i‖`.

    `cohort_size` members train (the source's `n`); in expectation, at most `uploads` of them (its `m`) send updates.
    `w_i` is the weight of a member in its cohort. With the aggregation's `weighting: cohort`, the sum
    `Σ (w_i / π_i) Δ_i` over those that upload equals the cohort's weighted mean in expectation, and these probabilities
    minimise its variance (with `size`, the examples would count twice). Each member decides independently, so
    occasionally none uploads, and the model does not change.

    `chances="optimal"` (OCS): `π_i` is proportional to `u_i`, capped at 1 for the largest updates; each member sends
    `u_i` and receives what it needs to compute `π_i`. `chances="approximate"` (AOCS): `π_i = min(m u_i / Σ u, 1)`, then
    four times `π_i ← min(C π_i, 1)` for the set `I` of members below 1, with `C = (m - n + |I|) / Σ_I π`. It needs only
    sums, so aggregation can be secure, but fewer upload where norms differ by orders of magnitude. A member sends its
    norm and at most eight more numbers, and receives five.

    Attributes:
      uploads: expected number of uploads. If no more members than this have changed the model, all of these upload
        (with `"approximate"`, perhaps not all).
      chances: `"optimal"` or `"approximate"`.
      weighting: `w_i` in proportion to the members' `"size"`, or equal, `"client"`.

    Source: Chen, Horváth and Richtárik, "Optimal Client Sampling for Federated Learning", 2022,
    https://arxiv.org/abs/2010.13723, equation (7), Algorithms 1 and 2; code:
    https://github.com/SamuelHorvath/FL-optimal-client-sampling.

    >>> OptimalSampling().signals().trained
    {'update_norm': UpdateNorm(sends=1, receives=1)}
    """

    uploads: Scalar = param(default=3.0, above=0)
    chances: str = static(default="optimal", choices=["optimal", "approximate"])
    weighting: str = static(default="size", choices=["size", "client"])

    @property
    def counts_examples(self) -> bool:
        """Returns whether the weights are by size."""
        return self.weighting == "size"

    def signals(self) -> Signals:
        """Returns the norms of the updates, before they are uploaded."""
        more = 0 if self.chances == "optimal" else STEPS
        return Signals(trained=[signals.UpdateNorm(sends=1 + 2 * more, receives=1 + more)])

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns a uniform cohort, which trains."""
        return uniform_m(key, ctx.available, ctx.m)

    def accept(
        self,
        key: PRNGKey,
        state: StrategyState,
        ctx: Context,
        cohort: Cohort,
        *,
        update_norm: Float[Array, "m"],
    ) -> Cohort:
        """Returns the members that upload, with weights that compensate for the others."""
        size = ctx.num_examples[cohort.client] if self.weighting == "size" else jnp.ones(ctx.m)
        weight = normalize(jnp.where(cohort.mask, size, 0.0))
        importance = weight * update_norm
        if self.chances == "optimal":
            pi = chances_of_inclusion(importance, self.uploads)  # Eq. (7)
        else:
            pi = approximate_chances(importance, self.uploads, cohort.mask)
        mask = cohort.mask & (jax.random.uniform(key, pi.shape) < pi)
        return cohort.replace(mask=mask, weight=jnp.where(mask, weight / jnp.where(mask, pi, 1.0), 0.0))


def approximate_chances(
    importance: Float[Array, "m"], expected: Scalar | int, mask: Bool[Array, "m"]
) -> Float[Array, "m"]:
    """Returns the probabilities of AOCS, which sum to at most `expected`, from sums over the members alone.

    Args:
      importance: `u`, 0 where there is no member.
      expected: expected number of uploads.
      mask: of the members.
    """
    n = mask.sum()
    pi = jnp.minimum(expected * normalize(importance), 1.0)  # Alg. 2, line 6

    def step(_, pi):
        below = mask & (pi < 1)
        total = jnp.where(below, pi, 0.0).sum()
        c = (expected - n + below.sum()) / jnp.where(total > 0, total, 1.0)  # Alg. 2, line 10
        return jnp.where(below, jnp.minimum(jnp.maximum(c, 1.0) * pi, 1.0), pi)

    return jax.lax.fori_loop(0, STEPS, step, pi)
