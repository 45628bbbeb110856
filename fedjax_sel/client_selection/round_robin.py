"""Round robin: all clients in turn."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["RoundRobin"]


class RoundRobin(ClientSelector):
    """The `m` clients whose last turn is longest ago, ties at random.

    If all `N` clients are available, each trains once in every `⌈N/m⌉` rounds; an unavailable client keeps its turn.
    This is the control for every method that explores: it shows what coverage alone is worth.

    Source: Yang et al., "Scheduling Policies for Federated Learning in Wireless Networks", 2019,
    https://arxiv.org/abs/1908.06287, policy RR.

    >>> RoundRobin().signals().before  # it asks for nothing
    {}
    """

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Int[Array, "N"]:
        """Returns the round of each client's last turn; -1: none yet."""
        return jnp.full(ctx.num_clients, -1, jnp.int32)

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context) -> Cohort:
        """Returns the clients that have waited longest."""
        return top_m(key, -state.astype(jnp.float32), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context, cohort: Cohort) -> Int[Array, "N"]:
        """Returns the rounds of the last turns; a member that returned nothing has had its turn, too."""
        return state.at[cohort.selected].set(ctx.round, mode="drop")
