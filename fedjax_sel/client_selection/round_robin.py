"""Round robin: all clients in turn."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["RoundRobin"]


class RoundRobin(ClientSelector):
    """The `m` clients at the head of a queue, which is in random order at first; they rejoin it at the end.

    If all `N` clients are available, no client ever has two turns more than another; an unavailable client keeps its
    place. This is the control for every method that explores: it shows what coverage alone is worth.

    Source: Yang et al., "Scheduling Policies for Federated Learning in Wireless Networks", 2019,
    https://arxiv.org/abs/1908.06287, policy RR.

    >>> RoundRobin().signals().before  # it asks for nothing
    {}
    """

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Int[Array, "N"]:
        """Returns the number of each client's last turn, counted over the turns of all clients; -1: none yet."""
        return jnp.full(ctx.num_clients, -1, jnp.int32)

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context) -> Cohort:
        """Returns the clients that have waited longest."""
        waited = state.max() - state  # a difference, which float32 holds for longer than the numbers themselves
        return top_m(key, waited.astype(jnp.float32), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context, cohort: Cohort) -> Int[Array, "N"]:
        """Returns the numbers of the last turns; a member that returned nothing has had its turn, too."""
        return state.at[cohort.selected].set(ctx.round * ctx.m + jnp.arange(ctx.m), mode="drop")
