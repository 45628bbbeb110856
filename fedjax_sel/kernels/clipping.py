"""Clipping to a norm, for differential privacy."""

from __future__ import annotations

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from fedjax_sel.arrays import widen
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import Variables


def clipping_factor(update: Variables, clip: Scalar) -> Float[Array, ""]:
    """Returns the factor, at most 1, that makes the norm at most `clip`; 0 if the norm's square is beyond float32.

    The norm is added up in 32 bits or more, whatever the precision of the update.

    >>> clipping_factor({"w": jnp.array([0.0, 4.0])}, 1.0).item()
    0.25
    """
    return jnp.minimum(1.0, clip / jnp.maximum(optax.tree.norm(widen(update)), jnp.finfo(jnp.float32).tiny))
