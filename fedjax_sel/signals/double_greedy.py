"""The members of a cohort whose average makes the best model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import CohortSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Batch, PRNGKey, Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedjax_sel.task import Task

__all__ = ["DoubleGreedy"]


class DoubleGreedy(CohortSignal):
    """1 for the members that double greedy search keeps, 0 for the others, by the loss of their mean model.

    `R(A) = reward - F_V(w + mean_A Δ_i)`, `R(∅) = 0`, with `F_V` the server's validation loss. In the order of the
    slots, with `X` the members kept and `Y` those not yet left out, `a = R(X ∪ i) - R(X)` and `b = R(Y - i) - R(Y)`:
    `i` is kept with probability `a⁺ / (a⁺ + b⁺)`, and always if both are 0; with `rule="deterministic"`, if `a ≥ b`. In
    rounds that are not multiples of `interval`, all members are kept and nothing is measured. This costs the clients
    nothing.

    Attributes:
      reward: value of a model with loss 0, in nats.
      rule: `"randomized"` or `"deterministic"`.
      interval: rounds between two searches.

    Source: Fourati et al., "FilFL: Client Filtering for Optimized Client Participation in Federated Learning", 2024,
    https://arxiv.org/abs/2302.06599; Buchbinder et al., "A Tight Linear Time (1/2)-Approximation for Unconstrained
    Submodular Maximization", 2015, https://doi.org/10.1137/130929205.

    >>> DoubleGreedy(interval=5).name
    'kept'
    """

    name: ClassVar[str] = "kept"

    reward: Scalar = param(default=10.0, low=0)
    rule: str = static(default="randomized", choices=["randomized", "deterministic"])
    interval: int = static(default=1, low=1)

    def measure(
        self, key: PRNGKey, round: Int[Array, ""], task: Task, updates: Updates, batch: Batch
    ) -> Float[Array, "m"]:
        """Returns 1 for each member that is kept, among those with an update, else 0."""
        there = (updates.weight > 0).astype(jnp.float32)

        def value(members: Float[Array, "m"]) -> Float[Array, ""]:
            worth = self.reward - task.mean_loss(updates.merge(members), batch)
            return jnp.where(members.any(), jnp.where(jnp.isfinite(worth), worth, RUINED), 0.0)

        def search():
            return double_greedy(value, key, there, self.rule == "randomized")

        return jax.lax.cond(round % self.interval == 0, search, lambda: there)


RUINED = -1e30
"""Value of members whose merged model has a loss that is not finite; finite, so that two of them compare."""


def double_greedy(value: Callable, key: PRNGKey, there: Float[Array, "m"], randomized: bool) -> Float[Array, "m"]:
    """Returns 1 for each member that is kept, else 0.

    Args:
      value: function of a set of members, given as 1 for members and 0 for others.
      key: for the coins.
      there: the members.
      randomized: whether the choice is random.
    """
    coins = jax.random.uniform(key, there.shape)

    def decide(i, carry):
        kept, left, worth_kept, worth_left = carry
        more, fewer = kept.at[i].set(1.0), left.at[i].set(0.0)
        worth_more, worth_fewer = value(more), value(fewer)
        a, b = worth_more - worth_kept, worth_fewer - worth_left
        if randomized:
            up, down = jnp.maximum(a, 0.0), jnp.maximum(b, 0.0)
            keep = (coins[i] * (up + down) < up) | ((up == 0) & (down == 0))
        else:
            keep = a >= b
        taken = (
            jnp.where(keep, more, kept),
            jnp.where(keep, left, fewer),
            jnp.where(keep, worth_more, worth_kept),
            jnp.where(keep, worth_left, worth_fewer),
        )
        return jax.tree.map(lambda new, old: jnp.where(there[i] > 0, new, old), taken, carry)

    begin = (jnp.zeros_like(there), there, jnp.zeros(()), value(there))
    return jax.lax.fori_loop(0, there.shape[0], decide, begin)[0]
