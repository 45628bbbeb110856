"""Dropout that draws no more random bits than its rate needs."""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.types import PRNGKey

__all__ = ["Dropout", "draw_mask"]

MOST_BITS = 16


class Dropout(nn.Module):
    """`flax.linen.Dropout` with as few random bits as the rate allows, where Flax draws 32 per number.

    On a CPU those 32 bits took a quarter of a local step of GPFL's perceptron (`benchmarks/NOTES.md`).

    Attributes:
      rate: share of the numbers set to zero while training; the others are divided by the share that is kept.

    >>> Dropout(0.5).apply({}, jnp.ones(4), train=False)
    Array([1., 1., 1., 1.], dtype=float32)
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "*shape"], *, train: bool) -> Float[Array, "*shape"]:
        """Returns the numbers, some of them set to zero."""
        if not train or self.rate == 0:
            return x
        if self.rate == 1:
            return jnp.zeros_like(x)
        keep, share = draw_mask(self.make_rng("dropout"), 1 - self.rate, x.shape)
        return jnp.where(keep, x / share, 0)


def draw_mask(key: PRNGKey, share: float, shape: tuple[int, ...]) -> tuple[Bool[Array, "*shape"], float]:
    """Returns a mask of independent draws, and the probability of true: `share` rounded to `MOST_BITS` binary digits.

    An entry's draw does not depend on the entries after it, so examples appended to a batch do not change it.
    """
    bits = next(b for b in (1, 2, 4, 8, MOST_BITS) if b == MOST_BITS or (share * 2**b).is_integer())
    below, size = max(1, round(share * 2**bits)), math.prod(shape)
    words = jax.random.bits(key, (-(-size * bits // 32),), jnp.uint32)
    digits = words[:, None] >> jnp.arange(0, 32, bits, dtype=jnp.uint32)[None] & jnp.uint32(2**bits - 1)
    return (digits.reshape(-1)[:size] < below).reshape(shape), below / 2**bits
