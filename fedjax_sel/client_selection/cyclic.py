"""Cyclic participation: groups of clients in turn, and random clients of the group."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["Cyclic"]


class CyclicState(NamedTuple):
    """What `Cyclic` carries from round to round.

    Attributes:
      group: of each client.
      order: of the groups in this cycle.
    """

    group: Int[Array, "N"]
    order: Int[Array, "groups"]


class Cyclic(ClientSelector):
    """In round `t`, `m` clients of group `t mod K`, all its subsets equally likely: cyclic participation.

    With the order `"shuffled"`, the order of the groups is drawn again for every cycle. One group means uniform
    selection; with `N / m` groups, every client trains once per cycle, always in the same group. Only clients of the
    round's group are selected, so a group with too few available clients leaves slots empty. It needs no signals and
    costs nothing.

    Attributes:
      groups: `K`; their sizes differ by at most one client.
      members: `"index"`, blocks of clients with neighbouring numbers (as time zones would be), or `"random"`.
      order: `"fixed"` or `"shuffled"`.

    Source: Cho et al., "On the Convergence of Federated Averaging with Cyclic Client Participation", 2023,
    https://arxiv.org/abs/2302.03109. The source has no shuffled order of groups.

    >>> Cyclic(groups=6, order="shuffled")
    Cyclic(groups=6, members='index', order='shuffled')
    """

    groups: int = static(default=4, low=1)
    members: str = static(default="index", choices=["index", "random"])
    order: str = static(default="fixed", choices=["fixed", "shuffled"])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> CyclicState:
        """Returns the groups and their first order; raises `ValueError` if a group would be smaller than the cohort."""
        most = ctx.num_clients // ctx.m
        if self.groups > most:
            raise ValueError(
                f"cyclic: groups is {self.groups}; a cohort of m = {ctx.m} comes from one group, so N = "
                f"{ctx.num_clients} clients make 1 to {most} groups"
            )
        key_members, key_order = jax.random.split(key)
        n = ctx.num_clients
        group = jnp.asarray(np.arange(n, dtype=np.int64) * self.groups // n, jnp.int32)
        if self.members == "random":
            group = group[jax.random.permutation(key_members, jnp.arange(n))]
        order = jnp.arange(self.groups)
        if self.order == "shuffled":
            order = jax.random.permutation(key_order, order)
        return CyclicState(group, order.astype(jnp.int32))

    def select(self, key: PRNGKey, state: CyclicState, ctx: Context) -> Cohort:
        """Returns clients of the group whose turn it is."""
        turn = state.order[ctx.round % self.groups]
        return uniform_m(key, ctx.available & (state.group == turn), ctx.m)

    def observe(self, key: PRNGKey, state: CyclicState, ctx: Context, cohort: Cohort) -> CyclicState:
        """Returns the state; a shuffled order is drawn again at the end of a cycle."""
        if self.order == "fixed":
            return state
        last = ctx.round % self.groups == self.groups - 1
        return state._replace(order=jnp.where(last, jax.random.permutation(key, state.order), state.order))
