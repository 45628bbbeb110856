"""The contribution of each member of a cohort to the value of the merged model."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import CohortSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Batch, PRNGKey, Updates

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedjax_sel.task import Task

__all__ = ["Shapley"]

MOST = 10
"""Largest number of members for which all coalitions are measured."""

WINDOW = 10
"""Running means that are compared to test convergence; twice as many orders are needed."""


class Shapley(CohortSignal):
    """Shapley values of the members in `v(A) = 1 - F_V(w + Σ_A a_i Δ_i / Σ_A a_i)`, `F_V` the server's validation loss.

    `v(∅)` is the value of the model that the cohort received. With `method="exact"`, all `2^m` coalitions are measured.
    With `"gtg"`, members join in random orders, each member first in turn, and their marginal values are averaged until
    the averages of the last ten orders are within a hundredth of the last one's size (in the authors' code, of its
    value, which may be negative), or after `passes` times `m` orders. Marginal values count as 0 once a coalition is
    within `threshold` of the full cohort, and all of them do if the round changed the value by less than that. A slot
    without an update has value 0. A loss that is not finite counts as `F_0 + 10 (|F_0| + 1)`, with `F_0` that of the
    model that the cohort received. The server measures all this, so it costs the clients nothing.

    Attributes:
      method: `"exact"`, for at most 10 slots, or `"gtg"`.
      threshold: of truncation, in nats; for `"gtg"`.
      passes: largest number of passes; for `"gtg"`.
      side_by_side: coalitions measured in parallel.

    With at most 10 slots, all coalitions are measured before orders are drawn if the orders could ask for more values
    than that; the results are the same, up to rounding.

    Source: Liu et al., "GTG-Shapley: Efficient and Accurate Participant Contribution Evaluation in Federated Learning",
    2022, https://arxiv.org/abs/2109.02053; the numbers are those of https://github.com/pringlesinghal/GreedyFed.

    >>> Shapley("gtg").name
    'shapley'
    """

    name: ClassVar[str] = "shapley"

    method: str = static(default="exact", choices=["exact", "gtg"])
    threshold: Scalar = param(default=1e-4, low=0)
    passes: int = static(default=50, low=1)
    side_by_side: int = static(default=16, low=1)

    def measure(
        self, key: PRNGKey, round: Int[Array, ""], task: Task, updates: Updates, batch: Batch
    ) -> Float[Array, "m"]:
        """Returns the values; raises `ValueError` for `"exact"` with more than 10 slots."""

        def measure_loss(members: Float[Array, "m"]) -> Float[Array, ""]:
            return task.mean_loss(updates.merge(members * updates.weight), batch)

        def value(members: Float[Array, "m"]) -> Float[Array, ""]:
            loss = measure_loss(members)
            return 1 - jnp.where(jnp.isfinite(loss), loss, worst)

        m = updates.weight.shape[0]
        received = measure_loss(jnp.zeros(m))
        worst = received + 10 * (jnp.abs(received) + 1)
        if self.method == "exact":
            return exact(value, m, self.side_by_side)
        return sample_orders(value, key, m, self.threshold, self.passes, self.side_by_side)


def exact(value: Callable, m: int, side_by_side: int = 16) -> Float[Array, "m"]:
    """Returns Shapley values from the values of all coalitions.

    Args:
      value: function of a coalition, given as 1 for members and 0 for others.
      m: players.
      side_by_side: coalitions measured in parallel.

    Raises:
      ValueError: there are more than 10 players.
    """
    if m > MOST:
        raise ValueError(
            f"shapley: the cohort has m = {m} slots, which make 2^{m} coalitions; all are measured for at most "
            f"{MOST}, so take method='gtg'"
        )
    coalitions = list_coalitions(m)
    size = coalitions.sum(1, keepdims=True)
    joins = 1 / (m * np.array([comb(m - 1, k) for k in range(m)]))  # weight of joining k others
    factor = np.where(coalitions == 1, joins[np.maximum(size - 1, 0)], -joins[np.minimum(size, m - 1)])
    v = measure_coalitions(value, m, side_by_side)
    return jnp.asarray(factor.T, jnp.float32) @ (v - v[0])


def list_coalitions(m: int) -> Int[np.ndarray, "coalitions m"]:
    """Returns all `2^m` coalitions, 1 for members; player `i` is bit `i` of a coalition's place."""
    return (np.arange(2**m)[:, None] >> np.arange(m)) & 1


def measure_coalitions(value: Callable, m: int, side_by_side: int) -> Float[Array, "coalitions"]:
    """Returns the values of all coalitions, `side_by_side` of them measured in parallel."""
    return jax.lax.map(value, jnp.asarray(list_coalitions(m), jnp.float32), batch_size=min(side_by_side, 2**m))


def sample_orders(
    value: Callable, key: PRNGKey, m: int, threshold: Scalar, passes: int, side_by_side: int = 16
) -> Float[Array, "m"]:
    """Returns mean marginal values over random orders, truncated.

    Args:
      value: as for `exact`.
      key: for the orders.
      m: players.
      threshold: of truncation.
      passes: largest number of passes; each has `m` orders.
      side_by_side: coalitions measured in parallel, if all are measured beforehand.
    """
    ends = (value(jnp.zeros(m)), value(jnp.ones(m)))

    def walk() -> Float[Array, "m"]:
        if m > MOST or passes * m * m < 2**m:
            return average_orders(value, key, m, ends, threshold, passes)
        known = measure_coalitions(value, m, side_by_side)
        place = jnp.asarray(2.0 ** np.arange(m), jnp.float32)
        return average_orders(lambda members: known[jnp.int32(members @ place)], key, m, ends, threshold, passes)

    return jax.lax.cond(jnp.abs(ends[1] - ends[0]) < threshold, lambda: jnp.zeros(m), walk)


def average_orders(
    value: Callable,
    key: PRNGKey,
    m: int,
    ends: tuple[Float[Array, ""], Float[Array, ""]],
    threshold: Scalar,
    passes: int,
) -> Float[Array, "m"]:
    """Returns mean marginal values over random orders until they converge; `ends` are the values of none and all."""
    nobody, whole = ends

    def join(j, carry):
        order, members, v, marginal = carry
        members = members.at[order[j]].set(1.0)
        new = jax.lax.cond(jnp.abs(whole - v) < threshold, lambda _: v, value, members)
        return order, members, new, marginal.at[order[j]].set(new - v)

    def order_first(carry, first):
        mean, past, count, key = carry
        key, key_order = jax.random.split(key)
        noise = jax.random.uniform(key_order, (m,)).at[first].set(-1.0)
        begin = (jnp.argsort(noise), jnp.zeros(m), nobody, jnp.zeros(m))
        marginal = jax.lax.fori_loop(0, m, join, begin)[3]
        mean = (count * mean + marginal) / (count + 1)
        past = jnp.concatenate([past[1:], mean[None]])
        return (mean, past, count + 1, key), still(past) & (count + 1 >= 2 * WINDOW)

    def run_pass(carry):
        state, converged = jax.lax.scan(order_first, carry[1], jnp.arange(m))
        return carry[0] + 1, state, converged.any()

    def goes_on(carry):
        return (carry[0] < passes) & ~carry[2]

    begin = (jnp.zeros(m), jnp.zeros((WINDOW, m)), jnp.zeros(()), key)
    return jax.lax.while_loop(goes_on, run_pass, (0, begin, jnp.array(False)))[1][0]


def still(past: Float[Array, "w m"]) -> Array:
    """Returns whether the running means of all players are within a hundredth of their last, on average."""
    return (jnp.abs(past - past[-1:]).mean(0) <= 0.01 * jnp.abs(past[-1])).all()
