"""Convolutions of 3x3 with stride 1 as a quarter or half of the products, by Winograd's minimal filtering.

Patches times a kernel take nine products for each output and pair of channels. A tile of 4x4 outputs depends on 6x6
inputs, and `Aᵀ [(G k Gᵀ) ⊙ (Bᵀ x B)] A` finds it from 36 products instead of 144, for the tile's inputs `x` and the
kernel `k`. Over channels, each of the 36 is a product of two matrices, tiles by channels and channels by channels. The
transforms are sums of a few slices.

Between 16 channels these products are too thin to gain anything. There a tile is a column of four outputs, filtered
along the height alone: `Aᵀ [(G k) ⊙ (Bᵀ x)]` takes six products of three places by channels instead of twelve.

Lavin and Gray interpolate at 0, ±1, ±2 and infinity; the points here are 0, ±1/√2, ±√2 and infinity, with half of the
rounding error: 2.5 times that of patches instead of 5.1 (`tests/models/test_winograd.py`).

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016,
https://arxiv.org/abs/1509.09308, section 4.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["COLUMN", "SQUARE", "convolve", "count_tiles", "measure_tiles"]

TILE, KERNEL = 4, 3
"""Sides of a tile of outputs, and of the kernel."""

SEEN = TILE + KERNEL - 1
"""Side of the inputs that a tile of outputs depends on, and of its transform."""

SQUARE, COLUMN = (TILE, TILE), (TILE, 1)
"""The tiles that there are: heights and widths."""


class Transforms(NamedTuple):
    """The matrices of a minimal filter in one dimension; along both sides of an image, each is applied twice.

    Attributes:
      inputs: `Bᵀ`.
      kernel: `G`.
      outputs: `Aᵀ`.
    """

    inputs: Float[np.ndarray, "6 6"]
    kernel: Float[np.ndarray, "6 3"]
    outputs: Float[np.ndarray, "4 6"]


def make_transforms(points: Sequence[float]) -> Transforms:
    """Returns the matrices that interpolate at these five points and at infinity.

    >>> make_transforms((0, 1, -1, 2, -2)).inputs[0].tolist()
    [4.0, 0.0, -5.0, 0.0, 1.0, 0.0]
    """
    inputs, kernel, outputs = np.zeros((SEEN, SEEN)), np.zeros((SEEN, KERNEL)), np.zeros((TILE, SEEN))
    for i, point in enumerate(points):
        others = [other for other in points if other != point]
        inputs[i, :-1] = np.poly(others)[::-1]
        kernel[i] = point ** np.arange(KERNEL) / math.prod(point - other for other in others)
        outputs[:, i] = point ** np.arange(TILE)
    inputs[-1], kernel[-1, -1], outputs[-1, -1] = np.poly(points)[::-1], 1, 1
    inputs[abs(inputs) < np.finfo(np.float32).eps] = 0  # what cancels but for rounding
    return Transforms(inputs, kernel, outputs)


TRANSFORMS = make_transforms((0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5)))


def count_tiles(sides: Sequence[int], tile: tuple[int, int]) -> tuple[int, int]:
    """Returns how many tiles cover both sides of the outputs; the last ones may reach beyond them.

    >>> count_tiles((28, 30), SQUARE), count_tiles((28, 30), COLUMN)
    ((7, 8), (7, 30))
    """
    down, across = (-(-side // size) for side, size in zip(sides, tile, strict=True))
    return down, across


def measure_tiles(out: tuple[int, ...], kernel: tuple[int, ...], itemsize: int, tile: tuple[int, int]) -> int:
    """Returns the bytes of the transformed inputs of one example.

    Args:
      out: shape of the outputs.
      kernel: shape of the kernel.
      itemsize: bytes of a number.
      tile: height and width of a tile.
    """
    of_tile = math.prod(size + KERNEL - 1 for size in tile)
    return math.prod(count_tiles(out[1:3], tile)) * of_tile * kernel[2] * itemsize


def convolve(
    lhs: Float[Array, "b h w i"],
    rhs: Float[Array, "3 3 i o"],
    padding: str | Sequence[tuple[int, int]],
    precision: Any,
    tile: tuple[int, int] = SQUARE,
) -> Float[Array, "b y x o"]:
    """Returns the convolution with stride 1.

    Args:
      lhs: examples.
      rhs: kernel.
      padding: `SAME`, `SAME_LOWER`, `VALID`, or the zeros before and after each side.
      precision: precision of the products.
      tile: `SQUARE` or `COLUMN`.
    """
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(lhs.shape[1:3], rhs.shape[:2], (1, 1), padding)
    sides = [n + before + after - KERNEL + 1 for n, (before, after) in zip(lhs.shape[1:3], padding, strict=True)]
    beyond = [size * num - side for size, num, side in zip(tile, count_tiles(sides, tile), sides, strict=True)]
    whole = [(before, after + more, 0) for (before, after), more in zip(padding, beyond, strict=True)]
    lhs = lax.pad(lhs, jnp.zeros((), lhs.dtype), [(0, 0, 0), *whole, (0, 0, 0)])
    outputs: Any = convolve_squares(lhs, rhs, precision) if tile == SQUARE else convolve_columns(lhs, rhs, precision)
    return outputs[:, : sides[0], : sides[1]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve_squares(lhs: Array, rhs: Array, precision: Any) -> Array:
    """Returns the convolution of examples that are padded to whole squares."""
    return squares_forwards(lhs, rhs, precision)[0]


@functools.partial(jax.jit, static_argnums=2)  # traced once for all layers of equal shapes
def squares_forwards(lhs, rhs, precision):
    """Returns the outputs, and for the backward pass the transformed inputs and the kernel."""
    inputs = transform_squares(TRANSFORMS.inputs, lhs)
    products = multiply("ktc,kco->kto", inputs, transform_kernel(rhs), precision)
    height, width = (side - KERNEL + 1 for side in lhs.shape[1:3])
    shape = SEEN, lhs.shape[0], height // TILE, width // TILE, rhs.shape[-1]
    columns = jnp.stack([x.reshape(shape) for x in combine(TRANSFORMS.outputs, products)], axis=4)
    rows = lax.optimization_barrier(columns).reshape(*shape[:3], -1)
    rows = jnp.stack(combine(TRANSFORMS.outputs, list(rows)), axis=2)
    outputs = lax.optimization_barrier(rows.reshape(lhs.shape[0], height, width, rhs.shape[-1]))
    return outputs, (inputs, rhs)


@functools.partial(jax.jit, static_argnums=0)
def squares_backwards(precision, kept, given):
    """Returns the gradients of examples and kernel: each transform's transpose, in the opposite order."""
    inputs, rhs = kept
    outputs = transform_squares(TRANSFORMS.outputs.T, given)
    of_inputs = multiply("kto,kco->ktc", outputs, transform_kernel(rhs), precision)
    of_kernels = multiply("ktc,kto->kco", inputs, outputs, precision)
    rows = [combine(TRANSFORMS.kernel.T, list(x)) for x in combine(TRANSFORMS.kernel.T, of_kernels)]
    of_kernel = jnp.stack([jnp.stack(x) for x in rows], axis=1)
    shape = SEEN, given.shape[0], given.shape[1] // TILE, given.shape[2] // TILE, rhs.shape[2]
    rows = lax.optimization_barrier(overlap([x.reshape(shape) for x in of_inputs], axis=3))
    flat = overlap(list(rows.reshape(*rows.shape[:3], -1)), axis=1)
    return lax.optimization_barrier(flat.reshape(*flat.shape[:2], -1, rhs.shape[2])), of_kernel


convolve_squares.defvjp(squares_forwards, squares_backwards)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve_columns(lhs: Array, rhs: Array, precision: Any) -> Array:
    """Returns the convolution of examples that are padded to whole columns."""
    return columns_forwards(lhs, rhs, precision)[0]


@functools.partial(jax.jit, static_argnums=2)
def columns_forwards(lhs, rhs, precision):
    """Returns the outputs, and for the backward pass the transformed inputs, in patches, and the kernel."""
    inputs = see_across(transform_rows(TRANSFORMS.inputs, lhs))
    kernel = jnp.stack(combine(TRANSFORMS.kernel, list(rhs)))
    products = jnp.einsum("kpc,kco->kpo", inputs, kernel.reshape(SEEN, -1, kernel.shape[-1]), precision=precision)
    num, height, width = lhs.shape[0], lhs.shape[1] - KERNEL + 1, lhs.shape[2] - KERNEL + 1
    rows = lax.optimization_barrier(products).reshape(SEEN, num, height // TILE, -1)
    outputs = jnp.stack(combine(TRANSFORMS.outputs, list(rows)), axis=2)
    return lax.optimization_barrier(outputs.reshape(num, height, width, -1)), (inputs, rhs)


@functools.partial(jax.jit, static_argnums=0)
def columns_backwards(precision, kept, given):
    """Returns the gradients of examples and kernel; along the width, the kernel is turned by 180° for the former."""
    inputs, rhs = kept
    outputs = transform_rows(TRANSFORMS.outputs.T, given)
    places = outputs.reshape(SEEN, -1, given.shape[-1])
    of_kernels = lax.optimization_barrier(jnp.einsum("kpo,kpc->koc", places, inputs, precision=precision))
    of_kernel = jnp.stack(combine(TRANSFORMS.kernel.T, list(of_kernels)))
    of_kernel = of_kernel.reshape(KERNEL, given.shape[-1], KERNEL, -1).transpose(0, 2, 3, 1)
    turned = jnp.stack(combine(TRANSFORMS.kernel, list(rhs[:, ::-1].swapaxes(2, 3))))
    beyond = ((0, 0),) * 3 + ((KERNEL - 1, KERNEL - 1), (0, 0))
    wide = see_across(jnp.pad(outputs, beyond))
    of_inputs = jnp.einsum("kpo,koc->kpc", wide, turned.reshape(SEEN, -1, rhs.shape[2]), precision=precision)
    rows = lax.optimization_barrier(of_inputs).reshape(SEEN, given.shape[0], given.shape[1] // TILE, -1)
    flat = overlap(list(rows), axis=1)
    return flat.reshape(*flat.shape[:2], -1, rhs.shape[2]), of_kernel


convolve_columns.defvjp(columns_forwards, columns_backwards)


def see_across(x: Float[Array, "6 b tiles w c"]) -> Float[Array, "6 places k"]:
    """Returns the three neighbouring columns that each place of the kernel's width sees."""
    across = x.shape[3] - KERNEL + 1
    patches = jnp.concatenate([x[..., left : left + across, :] for left in range(KERNEL)], axis=-1)
    return lax.optimization_barrier(patches.reshape(SEEN, -1, KERNEL * x.shape[-1]))


def transform_squares(matrix: np.ndarray, x: Float[Array, "b h w c"]) -> list[Float[Array, "6 tiles c"]]:
    """Returns `matrix x matrixᵀ` of every tile, in an array for each of the six columns.

    The barriers keep XLA from computing the rows again for each column, and the columns for each product.
    """
    columns = combine(matrix, cut(transform_rows(matrix, x), matrix.shape[1], axis=3))
    return [lax.optimization_barrier(x.reshape(SEEN, -1, x.shape[-1])) for x in columns]


def transform_rows(matrix: np.ndarray, x: Float[Array, "b h w c"]) -> Float[Array, "6 b tiles w c"]:
    """Returns `matrix x` of every tile."""
    flat = x.reshape(*x.shape[:2], -1)
    rows = lax.optimization_barrier(jnp.stack(combine(matrix, cut(flat, matrix.shape[1], axis=1))))
    return rows.reshape(*rows.shape[:3], *x.shape[2:])


def cut(x: Array, seen: int, axis: int) -> list[Array]:
    """Returns the `seen` places of each tile along an axis: the first of all tiles, the second, and so on."""
    end = x.shape[axis] - seen + 1
    return [lax.slice_in_dim(x, i, end + i, TILE, axis) for i in range(seen)]


def transform_kernel(rhs: Float[Array, "3 3 i o"]) -> list[Float[Array, "6 i o"]]:
    """Returns `G rhs Gᵀ`, in an array for each of the six columns."""
    rows = jnp.stack(combine(TRANSFORMS.kernel, list(rhs)))
    return combine(TRANSFORMS.kernel, [rows[:, x] for x in range(KERNEL)])


def multiply(axes: str, left: Sequence[Array], right: Sequence[Array], precision: Any) -> list[Array]:
    """Returns six batches of six products of matrices."""
    return [jnp.einsum(axes, a, b, precision=precision) for a, b in zip(left, right, strict=True)]


def combine(matrix: np.ndarray, parts: Sequence[Array]) -> list[Array]:
    """Returns `matrix @ parts`, as sums without the terms that are 0."""
    return [
        functools.reduce(operator.add, [float(factor) * x for factor, x in zip(row, parts, strict=True) if factor])
        for row in matrix
    ]


def overlap(parts: Sequence[Array], axis: int) -> Array:
    """Returns `B parts`, the six places of each tile along an axis, added up where neighbouring tiles overlap."""
    places = combine(TRANSFORMS.inputs.T, parts)
    last, first = ([(0, 0, 0)] * places[0].ndim for _ in range(2))
    last[axis], first[axis] = (0, 1, 0), (1, 0, 0)
    zero = jnp.zeros((), places[0].dtype)
    sums = [lax.pad(place, zero, last) for place in places[:TILE]]
    for i, place in enumerate(places[TILE:]):
        sums[i] += lax.pad(place, zero, first)
    side = sums[0].shape[axis]
    whole = jnp.stack(sums, axis + 1).reshape(*sums[0].shape[:axis], TILE * side, *sums[0].shape[axis + 1 :])
    return lax.slice_in_dim(whole, 0, TILE * (side - 1) + KERNEL - 1, axis=axis)
