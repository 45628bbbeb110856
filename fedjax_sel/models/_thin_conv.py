"""Convolution and max-pooling of few channels, with the examples along the last axis.

A CPU computes with vectors of 8 or 16 numbers, which few channels do not fill. Here the vectors run along the examples:
patches are copies of long pieces, the matrix product has a column for every place of every example, and pooling
compares whole vectors. Both functions transpose their operand and their result, so that they can replace those of
`_conv`. Where they alternate, XLA cancels the transposes between them, across biases and activations.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["are_thin", "convolve_thin", "pool_thin"]

LEAST_EXAMPLES, MOST_CHANNELS, MOST_BYTES = 16, 16, 8 * 2**20
"""Limits within which this is faster on a CPU: examples, channels of every output, and bytes of a layer's patches,
which are not divided into blocks here (`benchmarks/NOTES.md`)."""


def are_thin(examples: tuple[int, ...], side: int, channels: Sequence[int]) -> bool:
    """Returns whether convolutions, each followed by pooling, are faster with the examples along the last axis.

    It must be all of them: one alone would be slower, since its transposes remain.

    Args:
      examples: shape of the batch, channels last.
      side: of all kernels.
      channels: of the outputs.

    >>> are_thin((64, 28, 28, 1), 5, (6, 16)), are_thin((64, 28, 28, 1), 5, (32, 64))
    (True, False)
    """
    num, height, width, thin = *examples[:3], True
    for before, after in itertools.pairwise((examples[3], *channels)):
        height, width = height - side + 1, width - side + 1
        thin &= after <= MOST_CHANNELS and 4 * num * height * width * side**2 * before <= MOST_BYTES
        height, width = height // 2, width // 2
    return thin and num >= LEAST_EXAMPLES and jax.default_backend() == "cpu"


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
    down, across = (n - k + 1 for n, k in zip(lhs.shape[1:3], rhs.shape, strict=False))
    last = lax.optimization_barrier(lhs.transpose(3, 1, 2, 0))  # else each slice is transposed for itself
    slices = [
        last[:, top : top + down, left : left + across]
        for top, left in itertools.product(*(range(k) for k in rhs.shape[:2]))
    ]
    patches = jnp.concatenate(slices).reshape(math.prod(rhs.shape[:3]), -1)
    out: Array = product(rhs.reshape(len(patches), -1), patches, precision)
    return out.reshape(-1, down, across, lhs.shape[0]).transpose(3, 1, 2, 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(kernel: Float[Array, "k o"], patches: Float[Array, "k p"], precision: Any) -> Float[Array, "o p"]:
    """Returns `kernel.T @ patches`, with gradients as the products that a CPU computes fastest."""
    return lax.dot_general(kernel, patches, (((0,), (0,)), ((), ())), precision=precision)


def product_forwards(kernel, patches, precision):
    """Returns the product, and both factors for the backward pass."""
    return product(kernel, patches, precision), (kernel, patches)


def product_backwards(precision, kept, given):
    """Returns the gradients of both factors."""
    kernel, patches = kept
    return jnp.matmul(patches, given.T, precision=precision), jnp.matmul(kernel, given, precision=precision)


product.defvjp(product_forwards, product_backwards)


def pool_thin(x: Float[Array, "b h w c"]) -> Float[Array, "b y x c"]:
    """Returns the maximum of each square of 2x2; incomplete squares are dropped, as in `_conv.max_pool`."""
    num, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].transpose(3, 1, 2, 0)
    return x.reshape(channels, height // 2, 2, width // 2, 2, num).max((2, 4)).transpose(3, 1, 2, 0)
