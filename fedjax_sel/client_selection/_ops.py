"""What several selectors share: drawing a cohort of fixed shape from numbers a client."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey, StrategyState


def no_state(self: object, key: PRNGKey, ctx: Context, host: object) -> StrategyState:
    """`ClientSelector.init` of a selector that remembers nothing."""
    return ()


def everyone(self: object, key: PRNGKey, state: StrategyState, ctx: Context) -> None:
    """`ClientSelector.candidates` of a selector that asks everyone for its signals, or no one for none."""
    return None


def unchanged(
    self: object, key: PRNGKey, state: StrategyState, ctx: Context, cohort: Cohort, **signals: Array
) -> StrategyState:
    """`ClientSelector.observe` of a selector that learns nothing from the round."""
    return state


def top_m(key: PRNGKey, score: Float[Array, "N"], available: Bool[Array, "N"], m: int) -> Cohort:
    """The `m` available clients of highest score, best first; equal scores in random order.

    Where fewer are available, the last slots are empty. `lax.top_k` alone would settle a tie by the lowest index, and
    at the first round of many methods everybody ties.
    """
    score = jnp.where(available, score, -jnp.inf)
    _, best = jax.lax.top_k(score, m)
    last = score[best].min()  # by their places: the values alone would be compiled as a sort of all of them
    tier = jnp.where(score > last, 2.0, jnp.where(score == last, 1.0, 0.0))
    rank = jnp.where(available, tier + jax.random.uniform(key, score.shape), -1.0)
    _, client = jax.lax.top_k(rank, m)
    order = jnp.argsort(-score[client], stable=True)
    return cohort_of(client[order], available[client[order]])


def uniform_m(key: PRNGKey, available: Bool[Array, "N"], m: int) -> Cohort:
    """`m` available clients, all subsets equally likely."""
    noise = jax.random.uniform(key, available.shape)
    _, client = jax.lax.top_k(jnp.where(available, noise, -1.0), m)
    return cohort_of(client, available[client])


def gumbel_m(key: PRNGKey, log_weight: Float[Array, "N"], available: Bool[Array, "N"], m: int) -> Cohort:
    """`m` available clients, one after the other, with chances proportional to `exp(log_weight)` of those left.

    Source: Kool et al., "Stochastic Beams and Where to Find Them", 2019, https://arxiv.org/abs/1903.06059
      (Gumbel-top-k).
    """
    noisy = jnp.where(available, log_weight + jax.random.gumbel(key, log_weight.shape), -jnp.inf)
    _, client = jax.lax.top_k(noisy, m)
    return cohort_of(client, available[client])


def drawn(
    key: PRNGKey, log_weight: Float[Array, "N"], allowed: Bool[Array, "N"], count: Int[Array, ""], m: int
) -> Bool[Array, "N"]:
    """Who is in: of the allowed, `count`, which may be traced and is at most `m`, drawn as by `gumbel_m`."""
    noisy = log_weight + jax.random.gumbel(key, log_weight.shape)
    _, client = jax.lax.top_k(jnp.where(allowed, noisy, -jnp.inf), m)
    return allowed & jnp.zeros_like(allowed).at[client].set(jnp.arange(m) < count)


def nth(number: Float[Array, "N"], n: Int[Array, ""]) -> Float[Array, ""]:
    """`jnp.sort(number)[n]`; of many numbers bit by bit from the highest, in 32 passes.

    Of a million those take a sixtieth of a CPU's sort, of a thousand as long.

    Args:
      number: float32.
      n: from 0; may be traced.
    """
    if number.shape[0] <= FEW:
        return jnp.sort(number)[n]
    sign, bits = jnp.uint32(2**31), jax.lax.bitcast_convert_type(number, jnp.uint32)
    rising = jnp.where(bits & sign, ~bits, bits | sign)  # in the order of the numbers

    def bit(i, found):
        tried = found | (sign >> i)
        return jnp.where((rising < tried).sum() <= n, tried, found)

    found = jax.lax.fori_loop(0, 32, bit, jnp.uint32(0))
    return jax.lax.bitcast_convert_type(jnp.where(found & sign, found ^ sign, ~found), jnp.float32)


FEW = 1000
"""Numbers that are sorted."""


def whole(number: Float[Array, ""]) -> Int[Array, ""]:
    """Rounded down, where 11.9999 is meant as 12: a compiled division by 100 is a product with a rounded 0.01."""
    return jnp.floor(number + 1e-3).astype(jnp.int32)


def cohort_of(client: Int[Array, "m"], mask: Bool[Array, "m"]) -> Cohort:
    """Cohort without importance correction; empty slots read `PAD_CLIENT`."""
    return Cohort(jnp.where(mask, client, PAD_CLIENT).astype(jnp.int32), mask, jnp.where(mask, 1.0, 0.0))


def check_number(
    where: str, value: Scalar | int, low: float | int, high: float | int = math.inf, *, above: bool = False
) -> None:
    """Raise `ValueError` where a parameter, or one of those swept over, is NaN or outside `[low, high]`.

    Args:
      where: strategy and parameter.
      value: given.
      low, high: what is allowed.
      above: `low` itself is not.

    >>> check_number("fedcs: share", 1.5, 0, 1, above=True)
    Traceback (most recent call last):
    ValueError: fedcs: share is 1.5; it must be in (0, 1]
    """
    given = np.asarray(value, np.float64)
    if not (((given > low) if above else (given >= low)) & (given <= high)).all():
        allowed = f"in {'(' if above else '['}{low:g}, {high:g}]"
        if math.isinf(high):
            allowed = f"above {low:g}" if above else f"{low:g} or above"
        raise ValueError(f"{where} is {value}; it must be {allowed}")
