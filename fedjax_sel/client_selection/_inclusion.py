"""Chances with which clients are in a cohort: capped at 1, of a given sum; and draws that keep them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.types import PRNGKey

TOLERANCE = 1e-6
"""By what fraction a chance may exceed 1 and still count as 1: rounding."""


class Inclusion(NamedTuple):
    """Chances of being in a cohort.

    Attributes:
      chance: of each client.
      capped: whose would be above 1.
    """

    chance: Float[Array, "N"]
    capped: Bool[Array, "N"]


def fill_chances(log_weight: Float[Array, "N"], total: Float[Array, ""]) -> Inclusion:
    """Returns `min(1, c w_i)` with the `c` for which they sum to `total`.

    Where fewer than `total` weights are above 0, those have chance 1 and the others 0. Weights may differ by any
    factor: only their logarithms are added.

    Args:
      log_weight: logarithms of the weights; minus infinity: 0.
      total: 0 or above; may be traced and need not be whole.
    """
    falling = -jnp.sort(-log_weight)
    rest = jax.lax.cumlogsumexp(falling, reverse=True)  # of the weights that are not capped where the k largest are
    left = total - jnp.arange(log_weight.shape[0])
    usable = (left > 0) & (rest > -jnp.inf)
    log_factor = jnp.where(usable, jnp.log(jnp.where(usable, left, 1.0)) - jnp.where(usable, rest, 0.0), 0.0)
    fits = usable & (log_factor + falling <= TOLERANCE)
    k, some = jnp.argmax(fits), fits.any()
    scaled = jnp.where(some, log_factor[k] + log_weight, jnp.where(log_weight > -jnp.inf, 0.0, -jnp.inf))
    chance = jnp.where(total > 0, jnp.exp(jnp.minimum(scaled, 0.0)), 0.0)
    return Inclusion(chance, some & (k > 0) & (scaled >= -TOLERANCE))


def draw_systematic(key: PRNGKey, chance: Float[Array, "N"]) -> Bool[Array, "N"]:
    """Returns who is drawn: each client with exactly its chance, and always as many as the chances' whole sum.

    The clients stand in random order on a line, each as long as its chance, and those are drawn on whom a comb of
    distance 1 with a random start falls.

    Source: Madow, "On the Theory of Systematic Sampling, II", 1949, https://doi.org/10.1214/aoms/1177729988.
    """
    key_order, key_start = jax.random.split(key)
    order = jax.random.permutation(key_order, chance.shape[0])
    reach = jnp.cumsum(chance[order])
    whole = jnp.round(reach[-1])  # sums of float32 come near it
    reach = reach * whole / jnp.maximum(reach[-1], jnp.finfo(reach.dtype).tiny)
    reach = reach.at[-1].set(whole)
    teeth = jnp.floor(reach + jax.random.uniform(key_start))
    hit = jnp.diff(teeth, prepend=0.0) > 0
    return jnp.zeros(chance.shape, bool).at[order].set(hit)
