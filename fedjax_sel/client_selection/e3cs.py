"""E3CS: clients that return updates, found by exponential weights; every client keeps a minimum probability."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.client_selection._inclusion import Inclusion, draw_systematic, fill_chances
from fedjax_sel.client_selection._ops import gumbel_m, top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["E3CS"]

TINY = 1e-30
"""Smallest probability that is divided by."""


class E3CS(ClientSelector):
    """Draws clients with probability `π_i = σ + (m - N σ) w_i / Σ w`; `w` grows for those that return: Exp3 on success.

    Probabilities are capped at 1: weights are cut at the `α` for which the largest probability is 1, and the clients at
    `α` (the overflow set) keep their weights. For the others, `w_i ← w_i exp((m - N σ) η x̂_i / N)`, with
    `x̂_i = 1 / π_i` for a member whose update was merged, else 0. It thus learns which clients are volatile (fail in
    training or miss a deadline), which the server does not know beforehand. `N` and `m` count available clients
    only. It needs no signals and costs nothing.

    The paper draws `m` clients one after another in proportion to `π / m` among those left (`"successive"`), so
    inclusion probabilities are only close to `π_i`; `"systematic"` makes them exact.

    Attributes:
      eta: η, the learning rate.
      fairness: σ as a fraction of `m / N`; 1 is uniform.
      schedule: `"constant"`, or `"inc"` for `fairness` 0 in the first quarter of the rounds and 1 from then on.
      draw: `"successive"` or `"systematic"`.

    Source: Huang et al., "Stochastic Client Selection for Federated Learning with Volatile Clients", 2022,
    https://arxiv.org/abs/2011.08756, E3CS and its ProbAlloc.

    >>> E3CS(fairness=0.8).signals().after  # it asks for nothing
    {}
    """

    eta: Scalar = param(default=0.5, above=0)
    fairness: Scalar = param(default=0.5, low=0, high=1)
    schedule: str = static(default="constant", choices=["constant", "inc"])
    draw: str = static(default="successive", choices=["successive", "systematic"])

    @property
    def uses_rounds(self) -> bool:
        """Returns whether the fairness changes after a quarter of the rounds."""
        return self.schedule == "inc"

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns the logarithms of the weights, all equal."""
        return jnp.zeros(ctx.num_clients)

    def select(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Cohort:
        """Returns clients drawn by their probabilities."""
        chance = self.chances(state, ctx).chance
        if self.draw == "systematic":
            key_draw, key_order = jax.random.split(key)
            drawn = draw_systematic(key_draw, chance)
            return top_m(key_order, drawn.astype(jnp.float32), ctx.available & drawn, ctx.m)
        return gumbel_m(key, jnp.log(jnp.maximum(chance, TINY)), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context, cohort: Cohort) -> Float[Array, "N"]:
        """Returns the logarithms of the weights after the round."""
        chance, overflow = self.chances(state, ctx)
        came_back = jnp.zeros(ctx.num_clients, bool).at[cohort.returned].set(True, mode="drop")
        success = jnp.where(came_back, 1 / jnp.maximum(chance, TINY), 0.0)
        n, m, sigma = self.quota(ctx)
        gain = (m - n * sigma) * self.eta * success / jnp.maximum(n, 1)
        return state + jnp.where(overflow, 0.0, gain)

    def quota(self, ctx: Context) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """Returns how many clients are available, how many of them are drawn, and σ, the minimum probability."""
        n = ctx.available.sum().astype(jnp.float32)
        m = jnp.minimum(ctx.m, n)
        fairness = self.fairness
        if self.schedule == "inc":
            fairness = jnp.where(4 * ctx.round < ctx.rounds, 0.0, 1.0)
        return n, m, fairness * m / jnp.maximum(n, 1)

    def chances(self, state: Float[Array, "N"], ctx: Context) -> Inclusion:
        """Returns the probabilities, 0 for unavailable clients, and the overflow set."""
        n, m, sigma = self.quota(ctx)
        log_weight = jnp.where(ctx.available, state, -jnp.inf)
        total = (m - n * sigma) / jnp.where(sigma < 1, 1 - sigma, 1.0)
        total = jnp.where((m == n) & (sigma < 1), n, total)  # rounding would decide who is cut
        part, capped = fill_chances(log_weight, total)  # ProbAlloc
        return Inclusion(jnp.where(ctx.available, sigma + (1 - sigma) * part, 0.0), capped)
