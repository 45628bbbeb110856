"""Convolution and max-pooling of few channels, with the examples along the last axis.

A CPU computes with vectors of 8 or 16 numbers, which few channels do not fill. Here the vectors run along the examples,
and the image's rows along the first axis: `h, channel, w, b`. A convolution computes its output row by row, so that the
patches of a row stay in the caches, each with one matrix product that has a column for every place of every example.
Pooling compares whole vectors. Both functions transpose their operand and their result, so that they can replace those
of `_conv`. Where they alternate, XLA cancels the transposes between them, across biases and activations.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedjax_sel.models._pool import pool

__all__ = ["are_thin", "convolve_thin", "pool_thin"]

LEAST_EXAMPLES, MOST_CHANNELS = 16, 16
"""Limits within which this is faster on a CPU: examples, and channels of every output (`benchmarks/NOTES.md`)."""


def are_thin(examples: int, channels: Sequence[int]) -> bool:
    """Returns whether convolutions, each followed by pooling, are faster with the examples along the last axis.

    It must be all of them: one alone would be slower, since its transposes remain.

    Args:
      examples: of the batch.
      channels: of the outputs.

    >>> are_thin(64, (6, 16)), are_thin(64, (32, 64)), are_thin(8, (6, 16))
    (True, False, False)
    """
    return examples >= LEAST_EXAMPLES and max(channels, default=0) <= MOST_CHANNELS and jax.default_backend() == "cpu"


def convolve_thin(
    lhs: Float[Array, "b h w i"],
    rhs: Float[Array, "kh kw i o"],
    window_strides: Sequence[int],
    padding: str,
    *,
    precision: Any = None,
    **options: Any,
) -> Float[Array, "b y x o"]:
    """Returns the convolution without padding, with stride 1; has the signature of `lax.conv_general_dilated`.

    Raises:
      NotImplementedError: another convolution.
    """
    plain = {"lhs_dilation": (1, 1), "rhs_dilation": (1, 1), "feature_group_count": 1}
    other = {name: options[name] for name, value in plain.items() if options.get(name, value) not in (None, value)}
    if other or padding != "VALID" or tuple(window_strides) != (1, 1):
        raise NotImplementedError(
            f"convolve_thin: padding {padding!r}, strides {tuple(window_strides)} and {other}; it has none of these"
        )
    last = lax.optimization_barrier(lhs.transpose(1, 3, 2, 0))  # else each slice is transposed for itself
    out: Array = convolve_rows(last, rhs, precision)
    return out.transpose(3, 0, 2, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve_rows(
    x: Float[Array, "h i w b"], kernel: Float[Array, "kh kw i o"], precision: Any
) -> Float[Array, "y o x b"]:
    """Returns the convolution of examples along the last axis, row by row."""
    down, weights = len(x) - len(kernel) + 1, flatten(kernel)
    wide = widen(x, kernel.shape[1])

    def compute_row(y):
        of_row = lax.dot_general(weights, see_row(wide, y, kernel), (((0,), (0,)), ((), ())), precision=precision)
        return of_row.reshape(-1, *wide.shape[3:])

    return lax.map(compute_row, jnp.arange(down))


def convolve_forwards(x, kernel, precision):
    """Returns the convolution, and what the backward pass needs."""
    return convolve_rows(x, kernel, precision), (x, kernel)


def convolve_backwards(precision, kept, given):
    """Returns the gradients of both factors, each row by row; one that nobody needs is not computed."""
    x, kernel = kept
    wide, weights = widen(x, kernel.shape[1]), flatten(kernel)
    rows = jnp.arange(len(given)), given.reshape(*given.shape[:2], -1)

    def add_to_kernel(total, row):
        y, given = row
        return total + jnp.matmul(see_row(wide, y, kernel), given.T, precision=precision), None

    def add_to_examples(total, row):
        y, given = row
        seen = lax.dynamic_slice_in_dim(total, y, len(kernel))
        seen += jnp.matmul(weights, given, precision=precision).reshape(seen.shape)
        return lax.dynamic_update_slice_in_dim(total, seen, y, 0), None

    of_kernel, _ = lax.scan(add_to_kernel, jnp.zeros_like(weights), rows)
    of_wide, _ = lax.scan(add_to_examples, jnp.zeros_like(wide), rows)
    return narrow(of_wide), of_kernel.reshape(kernel.shape)


convolve_rows.defvjp(convolve_forwards, convolve_backwards)


def flatten(kernel: Float[Array, "kh kw i o"]) -> Float[Array, "k o"]:
    """Returns the kernel as a matrix."""
    return kernel.reshape(-1, kernel.shape[-1])


def widen(x: Float[Array, "h i w b"], width: int) -> Float[Array, "h kw i x b"]:
    """Returns the examples `kw` times, shifted along the width, so that a patch is a piece of successive rows."""
    across = x.shape[2] - width + 1
    return lax.optimization_barrier(jnp.stack([x[:, :, left : left + across] for left in range(width)], axis=1))


def narrow(wide: Float[Array, "h kw i x b"]) -> Float[Array, "h i w b"]:
    """Returns the sum of what was shifted: the transpose of `widen`."""
    width = wide.shape[1]
    sides = [((0, 0), (0, 0), (left, width - 1 - left), (0, 0)) for left in range(width)]
    return functools.reduce(operator.add, (jnp.pad(wide[:, left], pads) for left, pads in enumerate(sides)))


def see_row(wide: Float[Array, "h kw i x b"], y: Any, kernel: Float[Array, "kh kw i o"]) -> Float[Array, "k p"]:
    """Returns the patches of a row of the output."""
    return lax.dynamic_slice_in_dim(wide, y, len(kernel)).reshape(math.prod(kernel.shape[:3]), -1)


def pool_thin(x: Float[Array, "b h w c"]) -> Float[Array, "b y x c"]:
    """Returns the maximum of each square of 2x2; incomplete squares are dropped, as in `max_pool`."""
    height, width = x.shape[1:3]
    x = x[:, : height // 2 * 2, : width // 2 * 2].transpose(1, 3, 2, 0)
    return jnp.transpose(pool(x, 2, (0, 2)), (3, 0, 2, 1))
