"""The clients whose updates are oldest."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["Age"]


class Age(ClientSelector):
    """The `m` clients of largest age `A_i`, the rounds since an update of client `i` was merged; ties at random.

    Only a merged update resets the age. A client that was selected but returned nothing keeps its priority in the next
    round, whereas `round_robin` would move on; `m` clients that never return form the cohort of every later round. If
    all clients return, both select the same cohorts up to ties. It needs no signals and costs nothing.

    Source: Yang et al., "Age-Based Scheduling Policy for Federated Learning in Mobile Edge Networks", 2020,
    https://arxiv.org/abs/1910.14648, for identical channels.

    >>> Age().signals().before  # it asks for nothing
    {}
    """

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Int[Array, "N"]:
        """Returns the ages in rounds, all 0."""
        return jnp.zeros(ctx.num_clients, jnp.int32)

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context) -> Cohort:
        """Returns the oldest."""
        return top_m(key, state.astype(jnp.float32), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context, cohort: Cohort) -> Int[Array, "N"]:
        """Returns the ages after the round."""
        return (state + 1).at[cohort.returned].set(0, mode="drop")
