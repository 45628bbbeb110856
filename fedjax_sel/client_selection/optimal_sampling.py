"""Optimal client sampling: of those who trained, some upload, the longer their update the likelier."""

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
"""Rounds of messages of the approximation, as in the source's experiments."""


class OptimalSampling(ClientSelector):
    """Of a uniform cohort that trained, member `i` uploads with a chance `π_i` that grows with `u_i = w_i ‖Δ_i‖`.

    The experiment's `cohort_size` is how many train (the source's `n`); `uploads` of them send their update in
    expectation (its `m`). With `w_i` the weight of a member in its cohort, the sum `Σ (w_i / π_i) Δ_i` over those who
    upload is the cohort's weighted mean in expectation, with the aggregation's `weighting: cohort`, and of all chances
    these give it the least variance. Each member decides for itself, so now and then nobody uploads, and the model
    stays.

    `chances="optimal"` (OCS): `π_i` is proportional to `u_i` and at most 1, 1 for the longest updates; each sends
    `u_i` and receives what `π_i` follows from. `chances="approximate"` (AOCS): `π_i = min(m u_i / Σ u, 1)`, then four
    times `π_i ← min(C π_i, 1)` of those below 1, with `C = (m - n + |I|) / Σ_I π` over these, `I`; that needs only
    sums, so aggregation can be secure. A member sends its length and at most eight numbers more, and receives five.

    Attributes:
      uploads: how many upload in expectation; all do where it is no less than the members who came back.
      chances: `"optimal"` or `"approximate"`.
      weighting: `w_i` in proportion to the `"size"` of the members, or equal, `"client"`.

    Source: Chen, Horváth and Richtárik, "Optimal Client Sampling for Federated Learning", 2022,
    https://arxiv.org/abs/2010.13723, equation (7), Algorithms 1 and 2; code:
    https://github.com/SamuelHorvath/FL-optimal-client-sampling.

    >>> OptimalSampling().signals().trained
    {'update_norm': UpdateNorm(sends=1, receives=1)}
    """

    uploads: Scalar = param(default=3.0, above=0)
    chances: str = static(default="optimal", choices=["optimal", "approximate"])
    weighting: str = static(default="size", choices=["size", "client"])

    def signals(self) -> Signals:
        """Returns the lengths of the updates, before they are uploaded."""
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
        """Returns those who upload, with the weights that make up for the others."""
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
    """Returns the chances of AOCS, `expected` in sum at most, from sums over the members alone.

    Args:
      importance: `u`, 0 where there is no member.
      expected: uploads.
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
