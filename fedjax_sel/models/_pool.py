"""Max-pooling as the maximum of each square, with a backward pass of its own.

With `reduce_window` inside a loop, rounds of `conv_dropout` take XLA's CPU backend nearly twice as long (measured by
hand).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["max_pool", "pool"]


def max_pool(x: Float[Array, "*b h w c"], window: int = 2) -> Float[Array, "*b y x c"]:
    """Returns the maximum of each `window`-sided square; incomplete squares are dropped, as in Flax and PyTorch.

    Raises:
      ValueError: there is no complete square.

    >>> max_pool(jnp.arange(15.0).reshape(3, 5, 1))[..., 0]
    Array([[6., 8.]], dtype=float32)
    """
    *batch, height, width, _ = x.shape
    down, across = height // window, width // window
    if not (down and across):
        raise ValueError(f"max_pool: examples of {height}x{width} hold no window of {window}x{window}")
    x, sides = x[..., : down * window, : across * window, :], (len(batch), len(batch) + 1)
    one_example = math.prod(batch) == 1  # of which the operations are counted for the bill
    return find_largest(x, window, sides) if one_example else pool(x, window, sides)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def pool(x: Float[Array, "..."], window: int, sides: tuple[int, int]) -> Float[Array, "..."]:
    """Returns the maxima of examples that whole squares cover; equal maxima of a square share its gradient.

    So does automatic differentiation, whose backward pass takes a CPU 1.1 to 3 times as long (`benchmarks/NOTES.md`).

    Args:
      x: examples, with any axes beside both sides.
      window: side of a square; both sides are multiples of it.
      sides: axes of height and width.
    """
    return find_largest(x, window, sides)


def pool_forwards(x, window, sides):
    """Returns the maxima, and for the backward pass the examples, too."""
    largest = pool(x, window, sides)
    return largest, (x, largest)


def pool_backwards(window, sides, kept, given):
    """Returns the gradient of the examples; slices spare a reduction, the barrier a division at every place."""
    x, largest = kept
    squares, (down, across) = cut_squares(x, window, sides), find_places(sides)
    rows = [lax.index_in_dim(squares, i, down, keepdims=False) for i in range(window)]
    slices = [lax.index_in_dim(row, i, across - 1, keepdims=False) for row in rows for i in range(window)]
    equal = functools.reduce(operator.add, [(one == largest).astype(x.dtype) for one in slices])
    share = lax.optimization_barrier(given / equal)
    largest, share = (
        jnp.broadcast_to(jnp.expand_dims(one, (down, across)), squares.shape).reshape(x.shape)
        for one in (largest, share)
    )
    return (jnp.where(x == largest, share, 0),)


pool.defvjp(pool_forwards, pool_backwards)


def find_largest(x: Array, window: int, sides: tuple[int, int]) -> Array:
    """Returns the maximum of each square."""
    return cut_squares(x, window, sides).max(find_places(sides))


def cut_squares(x: Array, window: int, sides: tuple[int, int]) -> Array:
    """Returns the examples with each side divided into the numbers of squares and, on the next axis, their places."""
    divided = ((n // window, window) if axis in sides else (n,) for axis, n in enumerate(x.shape))
    return x.reshape(*itertools.chain.from_iterable(divided))


def find_places(sides: tuple[int, int]) -> tuple[int, int]:
    """Returns the axes of the places in a square, where `cut_squares` divides both sides."""
    return sides[0] + 1, sides[1] + 2
