"""Shuffled round robin: all clients in turn, in a new random order for every cycle."""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["ShuffledRoundRobin"]


class ShuffledRoundRobin(ClientSelector):
    """`m` clients that have not had a turn in this cycle, all subsets equally likely: regularised participation.

    If all `N` clients are available, each trains once in a cycle of `⌈N/m⌉` rounds, in a new random order for every
    cycle (`round_robin` repeats its first). Slots left at the end of a cycle begin the next one. A cycle waits for an
    unavailable client as long as others fill the cohort; such a client does not catch up on cycles that it missed. It
    needs no signals and costs nothing.

    Source: Malinovsky et al., "Federated Learning with Regularized Client Participation", 2023,
    https://arxiv.org/abs/2302.03662.

    >>> ShuffledRoundRobin().signals().before  # it asks for nothing
    {}
    """

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Bool[Array, "N"]:
        """Returns whether each client had its turn in this cycle, all false."""
        return jnp.zeros(ctx.num_clients, bool)

    def select(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context) -> Cohort:
        """Returns clients without a turn, and others only if these are too few."""
        return top_m(key, jnp.where(state, 0.0, 1.0), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context, cohort: Cohort) -> Bool[Array, "N"]:
        """Returns which clients had a turn, even if they returned nothing; in a new cycle, those that began it."""
        chosen = jnp.zeros_like(state).at[cohort.selected].set(True, mode="drop")
        again = chosen & state
        return jnp.where(again.any(), again, state | chosen)
