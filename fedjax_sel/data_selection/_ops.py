"""What several data selections share."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PRNGKey


def top_share(key: PRNGKey, valid: Bool[Array, "L"], fraction: Scalar, *scores: Float[Array, "L"]) -> Bool[Array, "L"]:
    """The share of the valid rows that `scores` rank first (`places`); rows equal in all of them in random order."""
    noise = jax.random.uniform(key, valid.shape, jnp.float32)
    return valid & (places(valid, *scores, noise) < share(valid, fraction))


def share(valid: Bool[Array, "L"], fraction: Scalar) -> Int[Array, ""]:
    """`max(1, round(fraction · n))`, `n` being the number of valid rows; 0 where there is none.

    The product is first rounded to a multiple of 1/4096: 0.3 in float32 is a little more than 0.3, but 0.3 · 15 is
    meant as 4.5, and that, as in Python, is rounded to the even neighbour.
    """
    n = valid.sum()
    count = jnp.round(jnp.round(4096 * fraction * n) / 4096)
    return jnp.clip(count, 1, n).astype(jnp.int32)


def places(valid: Bool[Array, "k"], *scores: Float[Array, "k"]) -> Int[Array, "k"]:
    """Place of each entry, from 0, in lexicographic order: valid ones first, then by each score, highest first.

    A later score counts only among entries whose earlier scores are equal. NaN comes after all numbers.

    >>> valid = jnp.array([True, True, False, True])
    >>> places(valid, jnp.array([0.0, 0.0, 9.0, 1.0]), jnp.array([-5.0, -3.0, 0.0, -9.0]))
    Array([2, 1, 3, 0], dtype=int32)
    """
    order = jnp.lexsort((*(-score for score in reversed(scores)), ~valid))
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))


def check_positive(where: str, value: object, high: float | int = math.inf) -> None:
    """Raise `ValueError` for a Python number that is not above 0, and finite and at most `high`; arrays pass.

    >>> check_positive("entropy: fraction", 1.5, 1)
    Traceback (most recent call last):
    ValueError: entropy: fraction is 1.5; it must be in (0, 1]
    """
    if isinstance(value, int | float) and not (0 < value <= high and value < math.inf):
        allowed = "a finite number above 0" if math.isinf(high) else f"in (0, {high:g}]"
        raise ValueError(f"{where} is {value!r}; it must be {allowed}")
