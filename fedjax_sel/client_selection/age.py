"""The clients whose updates are oldest."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["Age"]


class Age(ClientSelector):
    """The `m` clients of largest age, `A_i`: rounds since an update of client `i` was merged; ties at random.

    What counts is the update that arrived: a client that was selected and returned nothing has the same claim in the
    next round, where `round_robin` would move on; `m` clients that never return are the cohort of every later round.
    Where everybody returns, both select the same cohorts but for ties.
    It asks for nothing and costs nothing.

    Source: Yang et al., "Age-Based Scheduling Policy for Federated Learning in Mobile Edge Networks", 2020,
    https://arxiv.org/abs/1910.14648, for channels that are all alike.

    >>> Age().signals().before  # it asks for nothing
    {}
    """

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Int[Array, "N"]:
        """Returns the ages in rounds: everybody's is 0."""
        return jnp.zeros(ctx.num_clients, jnp.int32)

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context) -> Cohort:
        """Returns the oldest."""
        return top_m(key, state.astype(jnp.float32), ctx.available, ctx.m)

    def observe(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context, cohort: Cohort) -> Int[Array, "N"]:
        """Returns the ages after the round."""
        return (state + 1).at[cohort.returned].set(0, mode="drop")
