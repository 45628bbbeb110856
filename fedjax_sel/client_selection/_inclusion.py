"""Inclusion probabilities, at most 1 with a given sum, and draws that realise them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.types import PRNGKey

TOLERANCE = 1e-6
"""Relative excess over 1 at which a probability still counts as 1, because of rounding."""


class Inclusion(NamedTuple):
    """Probabilities of being in a cohort.

    Attributes:
      chance: the probability of each client.
      capped: the clients whose probability would exceed 1.
    """

    chance: Float[Array, "N"]
    capped: Bool[Array, "N"]


def fill_chances(log_weight: Float[Array, "N"], total: Float[Array, ""]) -> Inclusion:
    """Returns `min(1, c w_i)` with the `c` for which they sum to `total`.

    If fewer than `total` weights are positive, those clients get 1 and the others 0. Weights may differ by any factor,
    since only their logarithms are added.

    Args:
      log_weight: logarithms of the weights; minus infinity for a weight of 0.
      total: 0 or above; may be traced and need not be whole.
    """
    falling = -jnp.sort(-log_weight)
    rest = jax.lax.cumlogsumexp(falling, reverse=True)  # of the weights left when the k largest are capped
    left = total - jnp.arange(log_weight.shape[0])
    usable = (left > 0) & (rest > -jnp.inf)
    log_factor = jnp.where(usable, jnp.log(jnp.where(usable, left, 1.0)) - jnp.where(usable, rest, 0.0), 0.0)
    fits = usable & (log_factor + falling <= TOLERANCE)
    k, some = jnp.argmax(fits), fits.any()
    scaled = jnp.where(some, log_factor[k] + log_weight, jnp.where(log_weight > -jnp.inf, 0.0, -jnp.inf))
    chance = jnp.where(total > 0, jnp.exp(jnp.minimum(scaled, 0.0)), 0.0)
    return Inclusion(chance, some & (k > 0) & (scaled >= -TOLERANCE))


def draw_systematic(key: PRNGKey, chance: Float[Array, "N"]) -> Bool[Array, "N"]:
    """Returns the drawn clients: each with its probability, as many as the whole sum of these.

    This is exact up to rounding: of tens of thousands of draws at very different probabilities, a few may be missing.
    """
    order, hit = draw_in_order(key, chance)
    return jnp.zeros(chance.shape, bool).at[order].set(hit)


def draw_in_order(key: PRNGKey, chance: Float[Array, "N"]) -> tuple[Int[Array, "N"], Bool[Array, "N"]]:
    """Returns the clients in random order, and which of them are drawn; a client of probability 0 never is.

    Lays the clients end to end, each as long as its probability, and draws those hit by a grid of spacing 1 with a
    random start.

    Source: Madow, "On the Theory of Systematic Sampling, II", 1949, https://doi.org/10.1214/aoms/1177729988.
    """
    key_order, key_start = jax.random.split(key)
    order = jax.random.permutation(key_order, chance.shape[0])
    # XLA's cumulative sums in float32 may fall; without this, rounding alone could draw a client, or one twice.
    own = chance[order]
    reach = jax.lax.cummax(jnp.where(own > 0, jnp.cumsum(own), 0.0))
    whole = jnp.round(reach[-1])  # sums of float32 come near it
    scaled = reach * whole / jnp.maximum(reach[-1], jnp.finfo(reach.dtype).tiny)
    reach = jnp.where(reach == reach[-1], whole, scaled)
    teeth = jnp.floor(reach + jax.random.uniform(key_start))
    return order, jnp.diff(teeth, prepend=0.0) > 0
