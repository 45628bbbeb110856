"""Functions that draw a cohort of fixed shape from one number per client."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.pytree import Scalar, show_value
from fedjax_sel.types import DROPPED, PAD_CLIENT, Cohort, PRNGKey


def check_numbers(name: str, number: Any, available: Any, m: Any, what: str = "score") -> None:
    """Raises `ValueError` unless there is one number for each client, and true or false for its availability.

    Args:
      name: the function that was called.
      number, available, m: what it was given.
      what: what its numbers are called.
    """
    n = np.shape(available)
    if len(n) != 1 or getattr(available, "dtype", None) != jnp.bool_:
        raise ValueError(
            f"{name}: available is {show_value(available)}; it must be true or false for each client, as ctx.available"
        )
    if not hasattr(number, "dtype") or np.shape(number) != n:
        raise ValueError(
            f"{name}: {what} is {show_value(number)}; it must be one number for each of the {n[0]} clients"
        )
    if not isinstance(m, int | np.integer) or isinstance(m, bool):
        raise ValueError(f"{name}: m is {show_value(m)}; it must be a whole number, as ctx.m")


def top_m(key: PRNGKey, score: Float[Array, "N"], available: Bool[Array, "N"], m: int) -> Cohort:
    """Returns the `m` available clients of highest score, best first; equal scores in random order.

    A NaN score ranks lowest and is counted in the cohort's `nan_scores`.

    If fewer are available, the last slots are empty. `lax.top_k` alone would break ties by the lowest index, and in the
    first round of many methods all clients tie.
    """
    check_numbers("top_m", score, available, m)
    return top_by_noise(jax.random.uniform(key, score.shape), score, available, m)


def top_by_noise(noise: Float[Array, "N"], score: Float[Array, "N"], available: Bool[Array, "N"], m: int) -> Cohort:
    """Returns the cohort of `top_m`, with equal scores ordered by descending `noise`, which is in [0, 1)."""
    if (lacking := m - len(score)) > 0:  # fewer candidates than slots, the last of which stay empty
        noise, score, available = (jnp.pad(one, (0, lacking)) for one in (noise, score, available))
    undecided = available & jnp.isnan(score)
    score = jnp.where(available & ~undecided, score, -jnp.inf)
    _, best = jax.lax.top_k(score, m)
    last = score[best].min()  # by index: the values alone would compile to a sort of all scores
    tier = jnp.where(score > last, 2.0, jnp.where(score == last, 1.0, 0.0))
    rank = jnp.where(available, tier + noise, -1.0)
    _, client = jax.lax.top_k(rank, m)
    order = jnp.argsort(-score[client], stable=True)
    return cohort_of(client[order], available[client[order]], undecided.sum())


def learn_values(state: Float[Array, "N"], cohort: Cohort, value: Float[Array, "m"]) -> Float[Array, "N"]:
    """Returns the clients' values, updated for the members that returned.

    A member that did not return gets the mean of all values that are finite then: with its old value, or an unknown
    one, it could stay in every later cohort.

    Args:
      state: the value of each client; infinite where unknown.
      cohort: its mask marks the members that returned.
      value: the new value of each member.
    """
    told = state.at[cohort.returned].set(value, mode="drop")
    known = jnp.isfinite(told)
    mean = jnp.where(known, told, 0.0).sum() / jnp.maximum(known.sum(), 1)
    silent = jnp.where(cohort.mask | ~known.any(), DROPPED, cohort.selected)
    return told.at[silent].set(mean, mode="drop")


def uniform_m(key: PRNGKey, available: Bool[Array, "N"], m: int) -> Cohort:
    """Returns `m` available clients, all subsets equally likely."""
    check_numbers("uniform_m", available, available, m)
    noise = jax.random.uniform(key, available.shape)
    _, client = jax.lax.top_k(jnp.where(available, noise, -1.0), m)
    return cohort_of(client, available[client])


def gumbel_m(key: PRNGKey, log_weight: Float[Array, "N"], available: Bool[Array, "N"], m: int) -> Cohort:
    """Returns `m` available clients, drawn one after another in proportion to `exp(log_weight)` among those left.

    A client of weight 0 is drawn only if nobody else is left. A NaN weight is treated as 0 and counted in the cohort's
    `nan_scores`.

    Source: Kool et al., "Stochastic Beams and Where to Find Them", 2019, https://arxiv.org/abs/1903.06059
      (Gumbel-top-k).
    """
    check_numbers("gumbel_m", log_weight, available, m, "log_weight")
    undecided = available & jnp.isnan(log_weight)
    noisy = jnp.where(available, add_gumbel(key, log_weight), -jnp.inf)
    _, client = jax.lax.top_k(noisy, m)
    return cohort_of(client, available[client], undecided.sum())


def add_gumbel(key: PRNGKey, log_weight: Float[Array, "N"]) -> Float[Array, "N"]:
    """Returns log weights with Gumbel noise; those of weight 0 come after all others in random order, and NaN last."""
    noise = jax.random.gumbel(key, log_weight.shape, mode=find_noise_mode(len(log_weight)))
    least = jnp.finfo(log_weight.dtype).min
    last = least * (1 - 0.5 * jnp.exp(-jnp.exp(-noise)))
    return jnp.where(jnp.isnan(log_weight), least, jnp.maximum(log_weight + noise, last))


def draw_categorical(key: PRNGKey, log_weight: Float[Array, "*k N"], *shape: int) -> Int[Array, "..."]:
    """Returns draws with replacement in proportion to `exp(log_weight)`: of `shape`, or one for each row of weights."""
    return jax.random.categorical(key, log_weight, shape=shape or None, mode=find_noise_mode(log_weight.shape[-1]))


def draw_left(
    key: PRNGKey, log_weight: Float[Array, "N"], left: Bool[Array, "N"]
) -> tuple[Int[Array, ""], Bool[Array, "N"]]:
    """Returns one of the clients that are left, drawn in proportion to `exp(log_weight)`, and which are left then.

    The client is `PAD_CLIENT` if none is left.
    """
    drawn = draw_categorical(key, jnp.where(left, log_weight, -jnp.inf))
    return jnp.where(left[drawn], drawn, PAD_CLIENT), left & (jnp.arange(left.shape[0]) != drawn)


def find_noise_mode(n: int) -> str:
    """Returns the mode of JAX's Gumbel noise in which one of `n` is drawn.

    In the mode `"low"`, noise comes from multiples of 2^-23: among many clients, several often share the largest noise,
    and those of small probability are drawn too rarely.
    """
    return "high" if n > MANY else "low"


MANY = 4096
"""The most clients among which one is drawn by noise in steps of 2^-23."""


def epsilon_greedy_m(
    key: PRNGKey, score: Float[Array, "N"], available: Bool[Array, "N"], m: int, epsilon: Scalar, *, per_slot: bool
) -> Cohort:
    """Returns the clients of highest score in the exploiting slots, and random other clients in the exploring slots.

    Args:
      key: for the coin, ties and explorers.
      score: of each client.
      available: which clients are available.
      m: slots.
      epsilon: probability of exploring.
      per_slot: whether each slot tosses its own coin, instead of one coin for the cohort.
    """
    key_coin, key_tie, key_explore = jax.random.split(key, 3)
    noise = jax.random.uniform(key_tie, score.shape)  # breaks ties among scores, and among the taken clients
    # Step 1: a random number r in [0, 1)
    explore = jax.random.uniform(key_coin, (m if per_slot else 1,)) < epsilon
    exploit = ~jnp.broadcast_to(explore, (m,))
    # Step 2: the exploiting slots take the best few; a random number in [0, 1) ranks all others below them
    best = top_by_noise(noise, score, available, m)
    kept = jnp.arange(m) < exploit.sum()
    chance = jax.random.uniform(key_explore, score.shape)
    taken = jnp.where(kept & best.mask, best.client, score.shape[0])
    cohort = top_by_noise(noise, chance.at[taken].set(2.0, mode="drop"), available, m)
    return cohort.replace(nan_scores=best.nan_scores)


def draw_members(
    key: PRNGKey, log_weight: Float[Array, "N"], allowed: Bool[Array, "N"], count: Int[Array, ""], m: int
) -> Bool[Array, "N"]:
    """Returns the mask of `count` allowed clients, drawn as by `gumbel_m`; `count <= m` may be traced."""
    _, client = jax.lax.top_k(jnp.where(allowed, add_gumbel(key, log_weight), -jnp.inf), m)
    return allowed & jnp.zeros_like(allowed).at[client].set(jnp.arange(m) < count)


def nth_smallest(number: Float[Array, "N"], n: Int[Array, ""]) -> Float[Array, ""]:
    """Returns `jnp.sort(number)[n]`; among many numbers, found bit by bit from the highest, in 32 passes.

    On a CPU, the passes take a sixtieth of the time of a sort for a million numbers, and as long as one for a thousand.

    Args:
      number: float32; NaN comes last.
      n: from 0; may be traced.
    """
    if number.shape[0] <= MAX_SORTED:
        return jnp.sort(number)[n]
    number = jnp.where(jnp.isnan(number), jnp.nan, number)  # some have the sign of a negative number
    sign, bits = jnp.uint32(2**31), jax.lax.bitcast_convert_type(number, jnp.uint32)
    rising = jnp.where(bits & sign, ~bits, bits | sign)  # integers in the order of the numbers

    def add_bit(i, found):
        tried = found | (sign >> i)
        return jnp.where((rising < tried).sum() <= n, tried, found)

    found = jax.lax.fori_loop(0, 32, add_bit, jnp.uint32(0))
    return jax.lax.bitcast_convert_type(jnp.where(found & sign, found ^ sign, ~found), jnp.float32)


MAX_SORTED = 1000
"""Most numbers that `nth_smallest` sorts; among more, it searches."""


def round_down(number: Float[Array, "*k"]) -> Int[Array, "*k"]:
    """Returns a number rounded down, with 11.9999 counted as 12.

    A compiled division by 100 multiplies by a rounded 0.01.
    """
    return jnp.floor(number + 1e-3).astype(jnp.int32)


def cohort_of(client: Int[Array, "m"], mask: Bool[Array, "m"], nan_scores: Int[Array, ""] | int = 0) -> Cohort:
    """Returns a cohort without importance correction; empty slots hold `PAD_CLIENT`."""
    client = jnp.where(mask, client, PAD_CLIENT).astype(jnp.int32)
    return Cohort(client, mask, jnp.where(mask, 1.0, 0.0), nan_scores)
