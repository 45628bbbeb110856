"""Facility location: a few points that represent all points."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.types import PRNGKey

ROUNDING = 1e-6
"""Costs that differ by a smaller fraction are tied, so that rounding, in which layouts differ, settles no tie."""


def pairwise_distances(point: Float[Array, "N k"]) -> Float[Array, "N N"]:
    """Returns `‖x_i - x_j‖₂`, from differences, not from products, so that equal points have distance 0."""
    return jax.lax.map(lambda own: jnp.linalg.norm(point - own[None], axis=1), point)


def locate_facilities(
    key: PRNGKey,
    distance: Float[Array, "N N"],
    allowed: Bool[Array, "N"],
    m: int,
    examined: int | None = None,
    served: Bool[Array, "N"] | None = None,
) -> tuple[Int[Array, "m"], Bool[Array, "m"]]:
    """Returns `m` allowed points chosen greedily to lower `Σ_i min_{j ∈ S} D_ij`, and which of the slots are filled.

    If fewer points are allowed, the last slots are empty and hold -1.

    Args:
      key: for ties, and for the choice of examined points.
      distance: `D`, of every point (row) from every facility (column).
      allowed: which points can be facilities.
      m: number of points.
      examined: number of random points tried in each step (the stochastic greedy algorithm); None: all.
      served: which points count in the sum; None: all.

    >>> x = jnp.array([0.0, 1, 9])
    >>> locate_facilities(jax.random.key(0), jnp.abs(x[:, None] - x[None]), jnp.ones(3, bool), 2)[0]
    Array([1, 2], dtype=int32)
    """
    n = distance.shape[0]
    together, served = jnp.zeros(n, jnp.int32), jnp.ones(n, bool) if served is None else served
    step = locate_in_groups(key, distance, together, served, allowed, jnp.array([m]), examined)
    chosen = jnp.full(m, -1).at[jnp.where(step >= 0, step, m)].set(jnp.arange(n), mode="drop")
    return chosen.astype(jnp.int32), chosen >= 0


def locate_in_groups(
    key: PRNGKey,
    distance: Float[Array, "L L"],
    group: Int[Array, "L"],
    served: Bool[Array, "L"],
    allowed: Bool[Array, "L"],
    budget: Int[Array, "G"],
    examined: int | None = None,
) -> Int[Array, "L"]:
    """Returns in which greedy step, from 0, each point became a facility of its group; -1: it did not.

    In every group, facilities are chosen one after the other to lower `Σ_i min_{j ∈ S} D_ij` over its served points;
    all groups take their steps together. The greedy set achieves at least `1 - 1/e` of the best set's cost reduction.
    Ties (`ROUNDING`) are broken at random. A point whose distance from itself is NaN is neither a facility nor served.

    Args:
      key: for ties, and for the choice of examined points.
      distance: `D`, of every point (row) from every facility (column).
      group: of each point, in `0..G-1`.
      served: which points count in the sum.
      allowed: which points can be facilities.
      budget: facilities of each group; all allowed points of the group if it has fewer.
      examined: number of random points tried in each step (the stochastic greedy algorithm); None: all.

    Source: Nemhauser, Wolsey and Fisher, "An analysis of approximations for maximizing submodular set functions—I",
      1978, https://doi.org/10.1007/BF01588971; stochastic: Mirzasoleiman et al., "Lazier Than Lazy Greedy", 2015,
      https://arxiv.org/abs/1409.7938.
    """
    n, groups, place = distance.shape[0], budget.shape[0], jnp.arange(distance.shape[0])
    known = is_known(distance)
    served, allowed = served & known, allowed & known
    counts = (group[:, None] == group[None, :]) & served[:, None]

    def step(k, carry):
        nearest, chosen = carry
        key_tie, key_tried = jax.random.split(jax.random.fold_in(key, k))
        tried = left = allowed & (chosen < 0) & (k < budget[group])
        if examined is not None and examined < n:
            noise = jnp.where(left, jax.random.uniform(key_tried, (n,)), -1.0)
            tried = left & jnp.zeros(n, bool).at[jax.lax.top_k(noise, examined)[1]].set(True)
        cost = jnp.where(counts, jnp.minimum(nearest[:, None], distance), 0.0).sum(0)
        cost = jnp.where(tried, cost, jnp.inf)
        tied = tried & (cost <= (1 + ROUNDING) * jax.ops.segment_min(cost, group, groups)[group])
        noise = jnp.where(tied, jax.random.uniform(key_tie, (n,)), -1.0)
        best = tied & (noise == jax.ops.segment_max(noise, group, groups)[group])
        first = jax.ops.segment_min(jnp.where(best, place, n), group, groups)[group]  # of each point's group; n: none
        reached = distance[place, jnp.minimum(first, n - 1)]
        nearest = jnp.where(first < n, jnp.minimum(nearest, reached), nearest)
        return nearest, jnp.where(place == first, k, chosen)

    start = jnp.full(n, jnp.inf, distance.dtype), jnp.full(n, -1, jnp.int32)
    return jax.lax.fori_loop(0, budget.max(), step, start)[1]


def is_known(distance: Float[Array, "N N"]) -> Bool[Array, "N"]:
    """Returns which points have a distance from themselves; it is NaN where a coordinate is not finite."""
    return ~jnp.isnan(jnp.diagonal(distance))


def swap_medoids(
    distance: Float[Array, "L L"],
    facility: Bool[Array, "L"],
    group: Int[Array, "L"],
    served: Bool[Array, "L"],
    groups: int,
) -> Bool[Array, "L"]:
    """Returns facilities such that no exchange of one for another served point of its group lowers the cost.

    The cost of a group is `Σ_i min_{j ∈ S} D_ij` over its served points. In every pass, each group makes its best
    exchange (of ties, the first), until no group has one that helps, or after as many passes as there are points.

    Args:
      distance: `D`.
      facility: the initial facilities, as `locate_in_groups` finds them.
      group: of each point, in `0..G-1`.
      served: which points count, and can be facilities.
      groups: `G`.

    Source: Schubert and Rousseeuw, "Fast and eager k-medoids clustering", 2021, https://arxiv.org/abs/2008.05171, the
      cost changes of all exchanges at once (FastPAM1).

    >>> x = jnp.array([0.0, 1, 2, 10, 11])
    >>> one, all_ = jnp.zeros(5, int), jnp.ones(5, bool)
    >>> swap_medoids(jnp.abs(x[:, None] - x[None]), jnp.array([0, 0, 1, 1, 0], bool), one, all_, 1).nonzero()[0]
    Array([1, 3], dtype=int32)
    """
    n, place, served = distance.shape[0], jnp.arange(distance.shape[0]), served & is_known(distance)
    counts = (group[:, None] == group[None, :]) & served[:, None] & served[None, :]

    def measure(facility):
        reach = jnp.where(counts & facility[None, :], distance, jnp.inf)
        medoid, first = reach.argmin(1), reach.min(1)
        second = jnp.where(place[None, :] == medoid[:, None], jnp.inf, reach).min(1)
        known = jnp.isfinite(first)[:, None] & counts
        base = jnp.where(jnp.isfinite(first), first, 0.0)[:, None]
        gain = jnp.where(known, jnp.minimum(distance - base, 0.0), 0.0)
        lost = jnp.where(known, jnp.minimum(distance, second[:, None]) - base, 0.0) - gain
        change = gain.sum(0)[None, :] + jax.ops.segment_sum(lost, medoid, n)  # of medoid (row) for point (column)
        possible = facility[:, None] & ~facility[None, :] & counts
        cost = jax.ops.segment_sum(jnp.where(served, base[:, 0], 0.0), group, groups)
        return jnp.where(possible, change, jnp.inf), cost

    def swap(carry):
        facility, passes, _ = carry
        change, cost = measure(facility)
        least = jax.ops.segment_min(change.min(1), group, groups)
        better = least < -ROUNDING * cost
        best = change <= (least + ROUNDING * cost)[group][:, None]
        out = best.any(1) & better[group] & facility
        out = place == jax.ops.segment_min(jnp.where(out, place, n), group, groups)[group]
        taken = jnp.zeros(n, bool).at[jnp.where(out, best.argmax(1), n)].set(True, mode="drop")
        return (facility & ~out) | taken, passes + 1, better.any()

    start = facility, jnp.int32(0), jnp.array(True)
    return jax.lax.while_loop(lambda carry: carry[2] & (carry[1] < n), swap, start)[0]


def count_clusters(
    distance: Float[Array, "L L"], facility: Bool[Array, "L"], group: Int[Array, "L"], served: Bool[Array, "L"]
) -> Float[Array, "L"]:
    """Returns how many served points of its group each facility is nearest to; a facility is nearest to itself."""
    own = jnp.eye(distance.shape[0], dtype=bool)
    reachable = facility[None, :] & (group[:, None] == group[None, :])
    nearest = jnp.argmin(jnp.where(reachable, jnp.where(own, -1.0, distance), jnp.inf), axis=1)
    counted = served & is_known(distance) & reachable.any(1)
    return jax.ops.segment_sum(counted.astype(jnp.float32), nearest, distance.shape[0])


def count_served(
    distance: Float[Array, "N N"], facility: Int[Array, "m"], mask: Bool[Array, "m"], served: Bool[Array, "N"]
) -> Float[Array, "m"]:
    """Returns how many of the `served` points are nearest to each facility, and a facility to itself.

    Other ties go to the first facility.
    """
    own = jnp.arange(distance.shape[0])[:, None] == facility[None, :]
    reach = jnp.where(own, -1.0, distance[:, facility])
    nearest = jnp.argmin(jnp.where(mask[None, :], reach, jnp.inf), axis=1)
    count = jnp.zeros(facility.shape[0]).at[nearest].add((served & is_known(distance)).astype(jnp.float32))
    return jnp.where(mask, count, 0.0)
