"""Facility location: a few points that stand for all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.types import PRNGKey


def pairwise_distances(point: Float[Array, "N k"]) -> Float[Array, "N N"]:
    """Returns `‖x_i - x_j‖₂`, from differences and not from products, so that equal points are at 0 from each other."""
    return jax.lax.map(lambda own: jnp.linalg.norm(point - own[None], axis=1), point)


def locate_facilities(
    key: PRNGKey,
    distance: Float[Array, "N N"],
    allowed: Bool[Array, "N"],
    m: int,
    examined: int | None = None,
) -> tuple[Int[Array, "m"], Bool[Array, "m"]]:
    """Returns `m` allowed points chosen greedily to lower `Σ_i min_{j ∈ S} D_ij`, and which of the slots are filled.

    The cost of the greedy set is reduced by at least `1 - 1/e` of what the best set reduces it by. Equal choices are
    settled at random.

    Args:
      key: for ties, and for who is examined.
      distance: `D`, of every point (row) from every facility (column).
      allowed: which points can be facilities; every point is served.
      m: how many.
      examined: in each step only so many random points are tried (the stochastic greedy algorithm); None: all.

    Source: Nemhauser, Wolsey and Fisher, "An analysis of approximations for maximizing submodular set functions—I",
      1978, https://doi.org/10.1007/BF01588971; stochastic: Mirzasoleiman et al., "Lazier Than Lazy Greedy", 2015,
      https://arxiv.org/abs/1409.7938.
    """
    n = distance.shape[0]

    def step(k, carry):
        nearest, left, chosen = carry
        key_tie, key_tried = jax.random.split(jax.random.fold_in(key, k))
        cost = jnp.minimum(nearest[:, None], distance).sum(0)
        tried = left
        if examined is not None and examined < n:
            noise = jnp.where(left, jax.random.uniform(key_tried, (n,)), -1.0)
            tried = left & jnp.zeros(n, bool).at[jax.lax.top_k(noise, examined)[1]].set(True)
        cost = jnp.where(tried, cost, jnp.inf)
        noise = jax.random.uniform(key_tie, (n,))
        best = jnp.argmax(jnp.where(tried & (cost == cost.min()), noise, -1.0))
        new = tried.any()
        nearest = jnp.where(new, jnp.minimum(nearest, distance[:, best]), nearest)
        left = left & ~(new & (jnp.arange(n) == best))
        return nearest, left, chosen.at[k].set(jnp.where(new, best, -1))

    start = jnp.full(n, jnp.inf, distance.dtype), allowed, jnp.full(m, -1)
    _, _, chosen = jax.lax.fori_loop(0, m, step, start)
    return chosen.astype(jnp.int32), chosen >= 0


def count_served(
    distance: Float[Array, "N N"], facility: Int[Array, "m"], mask: Bool[Array, "m"], served: Bool[Array, "N"]
) -> Float[Array, "m"]:
    """Returns how many of the `served` points are nearest to each facility; the first of equally near ones has them."""
    nearest = jnp.argmin(jnp.where(mask[None, :], distance[:, facility], jnp.inf), axis=1)
    count = jnp.zeros(facility.shape[0]).at[nearest].add(served.astype(jnp.float32))
    return jnp.where(mask, count, 0.0)
