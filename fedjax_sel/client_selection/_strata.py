"""Stratified cohorts: divergences between clients, quotas of strata, and draws within them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection._ops import gumbel_m, top_by_noise
from fedjax_sel.types import Cohort, PRNGKey


def divergences(log_p: Float[Array, "N M C"], block: int = 256) -> Float[Array, "N N"]:
    """Returns `KL(p_i ‖ p_j)` in nats, the mean over the `M` examples; each row takes one matrix product.

    Args:
      log_p: log probabilities, of every client on the same examples.
      block: clients `i` at a time; memory holds `block · M · C` and `N · M · C` numbers and the result.
    """
    n, examples, _ = log_p.shape
    flat = log_p.reshape(n, -1)

    def diverge(own):
        p = jnp.exp(own)
        return (p @ own - flat @ p) / examples  # LEFL, Eq. (2), mean over the examples

    return jnp.maximum(jax.lax.map(diverge, flat, batch_size=min(block, n)), 0.0)


def quotas(size: Int[Array, "k"], m: int) -> Int[Array, "k"]:
    """Returns the slots of each stratum: `m` in all by largest remainder, and at least one for each with members.

    If there are fewer than `m` members in all, each gets a slot.

    Args:
      size: available members of each stratum.
      m: slots, at least as many as strata.
    """
    ideal = m * size.astype(jnp.float32) / jnp.maximum(size.sum(), 1)
    start = jnp.minimum(jnp.maximum(jnp.floor(ideal + 1e-4), 1), size).astype(jnp.int32)

    def step(_, q):
        short, over = q.sum() < m, q.sum() > m
        most = jnp.argmax(jnp.where(q < size, ideal - q, -jnp.inf))
        least = jnp.argmin(jnp.where(q > 1, ideal - q, jnp.inf))
        add = jnp.where(short & (q[most] < size[most]), 1, 0)
        drop = jnp.where(over & (q[least] > 1), 1, 0)
        return q.at[most].add(add).at[least].add(-drop)

    return jax.lax.fori_loop(0, m + size.shape[0], step, start)


def draw_quotas(key: PRNGKey, size: Int[Array, "k"], m: int) -> Int[Array, "k"]:
    """Returns the slots of each stratum, `m size / N` in expectation and always less than 1 away from it; `m` in all.

    Rounds systematically: one draw shifts the strata's shares, laid end to end, against the integers. Every member of
    every stratum is then selected equally often. If there are fewer than `m` members in all, each gets a slot.

    Args:
      key: for the draw.
      size: available members of each stratum.
      m: slots.

    >>> draw_quotas(jax.random.key(0), jnp.array([6, 3, 3]), 4)
    Array([2, 1, 1], dtype=int32)
    """
    total = jnp.maximum(size.sum(), 1)
    ends = jnp.minimum(m, total) * jnp.cumsum(size) + jax.random.randint(key, (), 0, total)
    return jnp.diff(ends // total, prepend=0).astype(jnp.int32)


def draw_strata(key: PRNGKey, size: Int[Array, "k"], m: int) -> Int[Array, "k"]:
    """Returns a quota of 1 for each of `m` strata, drawn without replacement in proportion to their members."""
    drawn = gumbel_m(key, jnp.log(jnp.maximum(size, 1e-9)), size > 0, m)
    taken = jnp.where(drawn.mask, drawn.client, size.shape[0])
    return jnp.zeros_like(size).at[taken].set(1, mode="drop")


def draw_stratified(
    key: PRNGKey, stratum: Int[Array, "N"], quota: Int[Array, "k"], available: Bool[Array, "N"], m: int
) -> Cohort:
    """Returns `quota` clients of each stratum, all subsets of a stratum equally likely; at most `m` in all.

    Args:
      key: for the draws.
      stratum: of each client.
      quota: of each stratum.
      available: which clients are available.
      m: slots.
    """
    noise = jax.random.uniform(key, available.shape)
    chosen = mark_chosen(noise, noise, stratum, quota, available)
    return top_by_noise(noise, chosen.astype(jnp.float32), chosen, m)


def top_stratified(
    key: PRNGKey,
    stratum: Int[Array, "N"],
    quota: Int[Array, "k"],
    score: Float[Array, "N"],
    available: Bool[Array, "N"],
    m: int,
) -> Cohort:
    """Returns the `quota` clients of highest score in each stratum, ties broken at random; at most `m` in all.

    Args:
      key: for ties.
      stratum: of each client.
      quota: of each stratum.
      score: of each client.
      available: which clients are available.
      m: slots.
    """
    noise = jax.random.uniform(key, available.shape)
    chosen = mark_chosen(noise, -score, stratum, quota, available)
    return top_by_noise(noise, chosen.astype(jnp.float32), chosen, m)


def places_in_strata(noise: Float[Array, "N"], cost: Float[Array, "N"], group: Int[Array, "N"]) -> Int[Array, "N"]:
    """Returns each client's place in its stratum, from 0, by rising `cost`; equal costs by `noise`."""
    order = jnp.lexsort((noise, cost, group))
    sorted_group = group[order]
    first = jnp.searchsorted(sorted_group, sorted_group, side="left")
    return jnp.zeros_like(order).at[order].set(jnp.arange(group.shape[0]) - first)


def mark_chosen(
    noise: Float[Array, "N"],
    cost: Float[Array, "N"],
    stratum: Int[Array, "N"],
    quota: Int[Array, "k"],
    available: Bool[Array, "N"],
) -> Bool[Array, "N"]:
    """Returns which clients are among the `quota` cheapest available ones of their stratum; equal costs by `noise`."""
    group = jnp.where(available, stratum, quota.shape[0])
    return available & (places_in_strata(noise, cost, group) < jnp.append(quota, 0)[group])
