"""FilFL: only clients that a search over trained models keeps."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey

__all__ = ["FilFL"]


class FilFL(ClientSelector):
    """Every `interval` rounds all `m` slots train and are filtered; in between, cohorts are drawn from those kept.

    In a filtering round, double greedy search keeps the members whose unweighted mean model has the lowest loss on the
    server's validation examples, and `members` of them, all subsets equally likely, are merged. In the other rounds,
    `members` of the clients kept last are selected, or all of them if they are fewer; if none of them is available,
    `members` of all available clients.

    Set `cohort_size` to the number of clients to filter. In a filtering round all members train and upload, and the
    server evaluates its validation examples `2 m + 1` times.

    Attributes:
      members: number of members merged; None: half of the slots, at least 1.
      interval: rounds between two filtering rounds.
      rule: of the search, `"randomized"` or `"deterministic"`.

    Source: Fourati et al., "FilFL: Client Filtering for Optimized Client Participation in Federated Learning", 2024,
    https://arxiv.org/abs/2302.06599; code: https://github.com/salmakh1/FilFL.

    >>> list(FilFL().signals().trained)
    ['kept']
    """

    members: int | None = static(default=None, low=1)
    interval: int = static(default=5, low=1)
    rule: str = static(default="randomized", choices=["randomized", "deterministic"])

    accepts_before_upload = False

    def signals(self) -> Signals:
        """Returns which members the search keeps."""
        return Signals(trained=[signals.DoubleGreedy(rule=self.rule, interval=self.interval)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Bool[Array, "N"]:
        """Returns the clients kept, all of them; raises `ValueError` if `members` is more than the slots."""
        if self.count(ctx) > ctx.m:
            raise ValueError(
                f"filfl: members is {self.members}, but the cohort has m = {ctx.m} slots; "
                "m is how many clients are filtered"
            )
        return jnp.ones(ctx.num_clients, bool)

    def count(self, ctx: Context) -> int:
        """Returns how many members are merged."""
        return max(1, ctx.m // 2) if self.members is None else self.members

    def filters(self, ctx: Context) -> Bool[Array, ""]:
        """Returns whether this is a filtering round."""
        return ctx.round % self.interval == 0

    def select(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context) -> Cohort:
        """Returns random clients in a filtering round, else random clients among those kept."""
        kept = state & ctx.available
        pool = jnp.where(self.filters(ctx) | ~kept.any(), ctx.available, kept)
        cohort = uniform_m(key, pool, ctx.m)
        mask = cohort.mask & (self.filters(ctx) | (jnp.arange(ctx.m) < self.count(ctx)))
        return Cohort(jnp.where(mask, cohort.client, PAD_CLIENT), mask, jnp.where(mask, cohort.weight, 0.0))

    def accept(
        self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context, cohort: Cohort, *, kept: Float[Array, "m"]
    ) -> Cohort:
        """Returns random members among those kept; in a round without filtering, all members."""
        drawn = uniform_m(key, cohort.mask & (kept > 0), self.count(ctx))
        chosen = jnp.zeros(ctx.m, bool).at[drawn.selected].set(True, mode="drop")
        mask = cohort.mask & (chosen | ~self.filters(ctx))
        return cohort.replace(mask=mask, weight=jnp.where(mask, cohort.weight, 0.0))

    def observe(
        self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context, cohort: Cohort, *, kept: Float[Array, "m"]
    ) -> Bool[Array, "N"]:
        """Returns the clients kept, including those that were not merged."""
        filtered = jnp.zeros_like(state).at[cohort.selected].set(kept > 0, mode="drop")
        return jnp.where(self.filters(ctx) & filtered.any(), filtered, state)
