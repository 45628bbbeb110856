"""Chances with which clients are in a cohort: capped at 1, of a given sum; and draws that keep them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.types import PRNGKey

TOLERANCE = 1e-6
"""By how much a chance may exceed 1 and still count as 1: rounding."""


class Inclusion(NamedTuple):
    """Chances of being in a cohort.

    Attributes:
      chance: of each client.
      capped: whose would be above 1.
    """

    chance: Float[Array, "N"]
    capped: Bool[Array, "N"]


def fill_chances(weight: Float[Array, "N"], total: Float[Array, ""]) -> Inclusion:
    """Returns `min(1, c w_i)` with the `c` for which they sum to `total`.

    Where fewer than `total` weights are above 0, those have chance 1 and the others 0.

    Args:
      weight: 0 or above.
      total: 0 or above; may be traced and need not be whole.
    """
    falling = -jnp.sort(-weight)
    rest = jnp.cumsum(falling[::-1])[::-1]  # sum of the weights that are not capped where the k largest are
    left = total - jnp.arange(weight.shape[0])
    factor = jnp.where((left > 0) & (rest > 0), left / jnp.where(rest > 0, rest, 1.0), 0.0)
    fits = (left > 0) & (rest > 0) & (factor * falling <= 1 + TOLERANCE)
    k = jnp.argmax(fits)
    scaled = jnp.where(fits.any(), factor[k] * weight, jnp.where((weight > 0) & (total > 0), 1.0, 0.0))
    return Inclusion(jnp.minimum(scaled, 1.0), fits.any() & (k > 0) & (scaled >= 1 - TOLERANCE))


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
