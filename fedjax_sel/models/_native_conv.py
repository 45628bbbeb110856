"""XLA's own convolution, forwards and backwards in the one form that a CPU is fast at.

XLA hands a convolution to a fast kernel where examples come first and channels last. The two that differentiation
writes have other orders, and take up to a hundred times as long on a CPU; here they are of that form too, at the cost
of transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedjax_sel.models._batches import divide_batch

__all__ = ["convolve", "find_padding"]

Padding = tuple[tuple[int, int], tuple[int, int]]


def find_padding(
    sides: Sequence[int], kernel: Sequence[int], padding: str | Sequence[tuple[int, int]]
) -> Padding | None:
    """Returns the zeros before and after each side; None where their gradient would be padded by less than 0.

    There XLA reads beside the examples on a CPU (https://github.com/openxla/xla/issues/48713).

    >>> find_padding((8, 8), (3, 3), "SAME"), find_padding((8, 8), (3, 3), [(3, 0), (0, 0)])
    (((1, 1), (1, 1)), None)
    """
    pads = lax.padtype_to_pads(sides, kernel, (1, 1), padding) if isinstance(padding, str) else padding
    (top, bottom), (left, right) = pads
    height, width = kernel
    fits = min(top, bottom, left, right) >= 0 and max(top, bottom) < height and max(left, right) < width
    return ((top, bottom), (left, right)) if fits else None


def convolve(
    lhs: Float[Array, "b h w i"], rhs: Float[Array, "kh kw i o"], padding: Padding, precision: Any, stacked: Callable
) -> Float[Array, "b y x o"]:
    """Returns the convolution with stride 1.

    Args:
      lhs: examples.
      rhs: kernel.
      padding: zeros before and after each side.
      precision: of the products.
      stacked: another function of `lhs` and `rhs` with the same result. It is mapped where clients with kernels of
        their own train side by side; XLA's convolution would become one of groups, which a CPU is slow at.
    """

    @jax.custom_batching.custom_vmap
    def forwards(lhs, rhs):
        return call(lhs, rhs, padding, precision)

    @forwards.def_vmap
    def _(size, batched, lhs, rhs):
        if not batched[1]:  # the same kernel for all: they are but more examples
            out = forwards(lhs.reshape(-1, *lhs.shape[2:]), rhs)
            return out.reshape(size, -1, *out.shape[1:]), True
        return jax.vmap(stacked, [0 if b else None for b in batched])(lhs, rhs), True

    @jax.custom_batching.custom_vmap
    def backwards(lhs, rhs, given):
        return differentiate(lhs, rhs, given, padding, precision)

    @backwards.def_vmap
    def _(size, batched, *kept):
        def one(lhs, rhs, given):
            return jax.vjp(stacked, lhs, rhs)[1](given)

        return jax.vmap(one, [0 if b else None for b in batched])(*kept), (True, True)

    @jax.custom_vjp
    def both(lhs, rhs):
        return forwards(lhs, rhs)

    both.defvjp(lambda *kept: (forwards(*kept), kept), lambda kept, given: backwards(*kept, given))
    return both(lhs, rhs)


def differentiate(
    lhs: Float[Array, "b h w i"],
    rhs: Float[Array, "kh kw i o"],
    given: Float[Array, "b y x o"],
    padding: Padding,
    precision: Any,
) -> tuple[Float[Array, "b h w i"], Float[Array, "kh kw i o"]]:
    """Returns the gradients of examples and kernel.

    Of examples: the kernel, turned by 180°, moves over what is given. Of the kernel: what is given moves over the
    examples, channels in place of examples and examples in place of channels. The barriers keep the transposes, which
    XLA would take into the convolutions, and so into their slow forms.
    """
    turned = lax.optimization_barrier(rhs[::-1, ::-1].swapaxes(2, 3))
    (top, bottom), (left, right) = padding
    height, width = rhs.shape[0] - 1, rhs.shape[1] - 1
    beyond = (height - top, height - bottom), (width - left, width - right)
    return call(given, turned, beyond, precision), differentiate_kernel(lhs, rhs, given, padding, precision)


EXAMPLES_AT_ONCE = 16
"""From so many a kernel's gradient is computed at once: with more, what is given outgrows a core's cache, and that can
take several times as long (`benchmarks/NOTES.md`)."""


def differentiate_kernel(
    lhs: Float[Array, "b h w i"],
    rhs: Float[Array, "kh kw i o"],
    given: Float[Array, "b y x o"],
    padding: Padding,
    precision: Any,
) -> Float[Array, "kh kw i o"]:
    """Returns the gradient of the kernel, a sum over equal blocks of examples where a batch can be divided so."""

    def of_block(lhs, given):
        channels_first, moving = lax.optimization_barrier((lhs.transpose(3, 1, 2, 0), given.transpose(1, 2, 0, 3)))
        return lax.optimization_barrier(call(channels_first, moving, padding, precision)).transpose(1, 2, 0, 3)

    examples, size = lhs.shape[0], divide_batch(lhs.shape[0], EXAMPLES_AT_ONCE)
    if size >= examples or examples % size:
        return of_block(lhs, given)
    blocks = [x.reshape(-1, size, *x.shape[1:]) for x in (lhs, given)]
    return lax.scan(lambda total, block: (total + of_block(*block), None), jnp.zeros_like(rhs), blocks)[0]


def call(lhs: Array, rhs: Array, padding: Padding, precision: Any) -> Array:
    """XLA's convolution."""
    order = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(lhs, rhs, (1, 1), padding, dimension_numbers=order, precision=precision)
