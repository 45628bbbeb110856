"""XLA's own convolution, forwards and backwards, in the one form that is fast on a CPU.

XLA uses a fast kernel for convolutions with examples first and channels last. The two convolutions of the automatic
gradient have other orders, and take up to a hundred times as long on a CPU; here they have the fast form, too, at the
cost of transposes.
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
    """Returns the zeros before and after each side; None if the gradient would need negative padding.

    With negative padding XLA reads out of bounds on a CPU (https://github.com/openxla/xla/issues/48713).

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
      precision: precision of the products.
      stacked: another function of `lhs` and `rhs` with the same result. It is vmapped if clients with kernels of their
        own train side by side; XLA's convolution would become a grouped one, which is slow on a CPU.
    """

    @jax.custom_batching.custom_vmap
    def forwards(lhs, rhs):
        return call(lhs, rhs, padding, precision)

    @forwards.def_vmap
    def _(size, batched, lhs, rhs):
        if not batched[1]:  # the same kernel for all: just more examples
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

    For the examples, `given` is convolved with the kernel turned by 180°. For the kernel, the examples are convolved
    with `given`, with the axes of examples and channels exchanged. The barriers keep the transposes, which XLA would
    otherwise merge into the convolutions, and so give these their slow forms.
    """
    turned = lax.optimization_barrier(rhs[::-1, ::-1].swapaxes(2, 3))
    (top, bottom), (left, right) = padding
    height, width = rhs.shape[0] - 1, rhs.shape[1] - 1
    beyond = (height - top, height - bottom), (width - left, width - right)
    return call(given, turned, beyond, precision), differentiate_kernel(lhs, rhs, given, padding, precision)


EXAMPLES_AT_ONCE = 16
"""The number of examples from which a kernel's gradient is computed at once: with more, the outputs' gradient outgrows
a core's cache, which can take several times as long (`benchmarks/NOTES.md`)."""


def differentiate_kernel(
    lhs: Float[Array, "b h w i"],
    rhs: Float[Array, "kh kw i o"],
    given: Float[Array, "b y x o"],
    padding: Padding,
    precision: Any,
) -> Float[Array, "kh kw i o"]:
    """Returns the gradient of the kernel, summed over equal blocks of examples if the batch divides into them."""

    def of_block(lhs, given):
        channels_first, moving = lax.optimization_barrier((lhs.transpose(3, 1, 2, 0), given.transpose(1, 2, 0, 3)))
        return lax.optimization_barrier(call(channels_first, moving, padding, precision)).transpose(1, 2, 0, 3)

    examples, size = lhs.shape[0], divide_batch(lhs.shape[0], EXAMPLES_AT_ONCE)
    if size >= examples or examples % size:
        return of_block(lhs, given)
    blocks = [x.reshape(-1, size, *x.shape[1:]) for x in (lhs, given)]
    return lax.scan(lambda total, block: (total + of_block(*block), None), jnp.zeros_like(rhs), blocks)[0]


def call(lhs: Array, rhs: Array, padding: Padding, precision: Any) -> Array:
    """Calls XLA's convolution, with stride 1."""
    order = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(lhs, rhs, (1, 1), padding, dimension_numbers=order, precision=precision)
