"""Everybody in turn, in an order that is drawn anew for every cycle."""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["ShuffledRoundRobin"]


class ShuffledRoundRobin(ClientSelector):
    """`m` clients that had no turn in this cycle, all subsets equally likely: regularised participation.

    With everybody available, all `N` clients train once in a cycle of `⌈N/m⌉` rounds, in an order that is drawn anew
    for the next (`round_robin` repeats its first). Slots that are left at the end of a cycle begin the next one. A
    client that cannot be reached is waited for as long as others fill the cohort; it does not catch up on cycles that
    it missed. It asks for nothing and costs nothing.

    Source: Malinovsky et al., "Federated Learning with Regularized Client Participation", 2023,
    https://arxiv.org/abs/2302.03662.

    >>> ShuffledRoundRobin().signals().before  # it asks for nothing
    {}
    """

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Bool[Array, "N"]:
        """Returns whether each client had its turn in this cycle: nobody."""
        return jnp.zeros(ctx.num_clients, bool)

    def select(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context) -> Cohort:
        """Returns clients without a turn; where there are too few of them, others beside them."""
        return top_m(key, jnp.where(state, 0.0, 1.0), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context, cohort: Cohort) -> Bool[Array, "N"]:
        """Returns who had a turn, also of those who returned nothing; in a new cycle, those who began it."""
        chosen = jnp.zeros_like(state).at[cohort.selected].set(True, mode="drop")
        again = chosen & state
        return jnp.where(again.any(), again, state | chosen)
