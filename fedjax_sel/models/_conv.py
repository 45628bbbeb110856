"""Convolutions as slices and one matrix product.

Every local step runs inside a loop. There, on XLA's CPU backend, rounds of `conv_dropout` take 31 times as long with
native convolutions and their automatic gradients as with patches times a matrix (`python -m benchmarks --only
layouts`; 13 and 64 times in earlier measurements). But on a CPU, patches that outgrow the caches cost more than the
products. For those, if a device is one core, the convolution is XLA's own after all, with gradients in another form
(`_native_conv`); otherwise the batch is divided into blocks of examples, forwards and backwards. Kernels of 3x3 need a
quarter or half of the products (`_winograd`).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedjax_sel.cores import count_cores
from fedjax_sel.models import _winograd
from fedjax_sel.models._batches import divide_batch, in_blocks
from fedjax_sel.models._native_conv import convolve, find_padding

__all__ = ["convolution", "is_lowered"]

NATIVE: frozenset[str] = frozenset()
"""Backends whose native convolution is always used, unchanged: none. On a GPU (H100) stacked clients make it a grouped
one, with which rounds take 1.5 (ResNet-20) to 5 times (`conv_dropout`) as long (`benchmarks/NOTES.md`)."""

CHANNELS_LAST = ("NHWC", "HWIO", "NHWC")


def convolution(
    lhs: Float[Array, "b h w i"],
    rhs: Float[Array, "kh kw j o"],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = CHANNELS_LAST,
    feature_group_count: int = 1,
    precision: Any = None,
) -> Float[Array, "b y x o"]:
    """Returns what `jax.lax.conv_general_dilated` computes for images, in a form that is fast inside a loop.

    It concatenates the `kh kw` shifted slices of the padded examples along the channels, and multiplies them by the
    kernel as one matrix. With groups of `j` channels, there is one such product per group. If a group is one channel
    (depthwise), it sums the slices, each times its weights: products that thin took longer (measured).

    Args:
      lhs: examples.
      rhs: kernel.
      window_strides: strides along both sides.
      padding: `SAME`, `SAME_LOWER`, `VALID`, or the zeros before and after each side.
      lhs_dilation: ones only; transposed convolutions are not lowered.
      rhs_dilation: spacing of the kernel's entries along both sides.
      dimension_numbers: NHWC, HWIO, NHWC only.
      feature_group_count: groups, `i / j`.
      precision: precision of the products.

    Raises:
      NotImplementedError: the examples are not images with channels last, or `lhs_dilation` is above 1.
      ValueError: the channels do not fit kernel and groups, or the kernel is larger than the padded examples.
    """
    check_lowered(lhs.shape, rhs.shape, lhs_dilation, dimension_numbers)
    if jax.default_backend() in NATIVE:
        return lax.conv_general_dilated(
            lhs,
            rhs,
            window_strides,
            padding,
            rhs_dilation=rhs_dilation,
            dimension_numbers=CHANNELS_LAST,
            feature_group_count=feature_group_count,
            precision=precision,
        )
    width, out = rhs.shape[2:]
    channels, groups = lhs.shape[-1], feature_group_count
    if channels != width * groups or out % groups:
        raise ValueError(
            f"convolution: examples of shape {lhs.shape} and a kernel of shape {rhs.shape} in {groups} group(s); it "
            f"needs {width * groups} channels in, and a number of channels out that {groups} divides"
        )
    dilation = tuple(rhs_dilation or (1, 1))
    lowered = functools.partial(
        extract_patches, padding=padding, strides=window_strides, dilation=dilation, precision=precision
    )
    out = jax.eval_shape(lowered, lhs, rhs).shape
    bytes_of_patches = measure_patches(out, rhs.shape, lhs.dtype.itemsize * groups)
    if (*window_strides, *dilation, groups) == (1,) * 5:
        if tile := choose_tile(lhs, out, rhs.shape):
            in_tiles = functools.partial(_winograd.convolve, padding=padding, precision=precision, tile=tile)
            bytes_of_tiles = _winograd.measure_tiles(out, rhs.shape, lhs.dtype.itemsize, tile)
            return in_blocks(in_tiles, block(len(lhs), bytes_of_tiles), lhs, rhs)
        pads = find_padding(lhs.shape[1:3], rhs.shape[:2], padding)
        if pads is not None and is_faster_natively(lhs, out, rhs.shape, bytes_of_patches):
            blocks = functools.partial(in_blocks, lowered, block(len(lhs), bytes_of_patches, largest=0))
            return convolve(lhs, rhs, pads, precision, blocks)
    at_once = len(lhs) if rhs.shape[:2] == (1, 1) else block(len(lhs), bytes_of_patches)  # 1x1: no copies
    return in_blocks(lowered, at_once, lhs, rhs)


def extract_patches(
    lhs: Float[Array, "b h w i"], rhs: Float[Array, "kh kw j o"], padding, strides, dilation, precision
) -> Float[Array, "b y x o"]:
    """Returns the convolution of all examples at once."""
    *kernel, width, out = rhs.shape
    groups = lhs.shape[-1] // width
    see = functools.partial(shift, kernel=kernel, strides=strides, padding=padding, dilation=dilation)
    wide = jnp.promote_types(lhs.dtype, jnp.float32)  # for sums over positions and over the kernel's places
    if groups > 1 and width == 1:
        weights = rhs.reshape(-1, 1, 1, 1, out).astype(wide)
        slices = see(jnp.repeat(lhs, out // groups, axis=-1).astype(wide))
        total = functools.reduce(operator.add, (x * w for x, w in zip(slices, weights, strict=True)))
        return total.astype(lhs.dtype)
    slices = [x.astype(lhs.dtype) for x in see(lhs.astype(wide))]
    if groups == 1:
        patches = slices[0] if len(slices) == 1 else jnp.concatenate(slices, axis=-1)
        return product(patches, rhs.reshape(-1, out), precision)
    image = slices[0].shape[:-1]
    patches = jnp.stack([x.reshape(*image, groups, width) for x in slices], axis=-2)
    weights = rhs.reshape(-1, width, groups, out // groups)
    return jnp.einsum("byxgkj,kjgo->byxgo", patches, weights, precision=precision).reshape(*image, out)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(patches: Float[Array, "b y x k"], kernel: Float[Array, "k o"], precision: Any) -> Float[Array, "b y x o"]:
    """Returns `patches @ kernel`; its backward pass computes the kernel's gradient as the transpose of `o x k`.

    A CPU computes that sum over all positions 1.2 to 1.8 times as fast as the `k x o` of automatic differentiation, to
    which XLA would convert it without the barrier (`benchmarks/NOTES.md`).
    """
    return jnp.matmul(patches, kernel, precision=precision)


def product_forwards(patches, kernel, precision):
    """Returns the product, and both factors for the backward pass."""
    return product(patches, kernel, precision), (patches, kernel)


def product_backwards(precision, kept, given):
    """Returns the gradients of both factors."""
    patches, kernel = kept
    places = patches.reshape(-1, patches.shape[-1])
    of_kernel = jnp.matmul(given.reshape(-1, given.shape[-1]).T, places, precision=precision)
    return jnp.matmul(given, kernel.T, precision=precision), lax.optimization_barrier(of_kernel).T


product.defvjp(product_forwards, product_backwards)


SEVERAL_CORES, ONE_CORE = (10 * 2**20, 3 * 2**20), (8 * 2**20, 2**20)
"""Bytes of patches beyond which a CPU divides a batch into blocks, and those of one block, by a device's cores.

Measured on 2 cores with 1 MiB of second-level cache each, forwards and backwards; if both are one device, smaller
blocks give each core too little to do (`benchmarks/NOTES.md`).
"""


def block(examples: int, bytes_of_example: int, largest: int | None = None) -> int:
    """Returns how many examples to process at once: on a CPU few enough that their patches stay in its caches.

    Args:
      examples: the batch.
      bytes_of_example: of the patches, or of Winograd's tiles, of one example.
      largest: bytes of the batch beyond which there are blocks; None: as measured.
    """
    few, best = ONE_CORE if is_one_core() else SEVERAL_CORES
    largest = few if largest is None else largest
    if jax.default_backend() != "cpu" or examples * bytes_of_example <= largest:
        return examples
    return divide_batch(examples, max(1, best // bytes_of_example))


def measure_patches(out: tuple[int, ...], kernel: tuple[int, ...], itemsize: int) -> int:
    """Returns the bytes of the patches of one example."""
    return math.prod(out[1:3]) * math.prod(kernel[:-1]) * itemsize


def is_one_core() -> bool:
    """Returns whether a device is one core of a CPU: there are several devices (`runs.prepare`), or only one core."""
    return jax.default_backend() == "cpu" and (jax.local_device_count() > 1 or count_cores() == 1)


NATIVE_PATCHES, NATIVE_CHANNELS, NATIVE_ROWS = 2 * 2**20, 16, 256
"""Limits from which XLA's convolution is faster than patches on one core: bytes of patches, the divisor of the input
channels (the width of a vector), and input channels times examples."""


def is_faster_natively(lhs: Array, out: tuple[int, ...], kernel: tuple[int, ...], bytes_of_patches: int) -> bool:
    """Returns whether a convolution with stride 1 is faster as XLA's own, its gradients in the form of `_native_conv`.

    Measured with both of two cores busy: the convolution alone is 1.1 to 1.7 times as fast as the better of patches and
    blocks within these limits, and 0.2 to 0.9 times as fast outside of them or if a device is two cores; steps of
    residual networks took 0.83 to 0.95 of the time (`benchmarks/NOTES.md`). If the sides shrink, the gradient of the
    examples takes more operations.

    Args:
      lhs: examples.
      out: shape of the result.
      kernel: shape of the kernel.
      bytes_of_patches: of one example.
    """
    channels, examples = kernel[2], out[0]
    return (
        is_one_core()
        and examples > 1  # the operations of one are counted for the bill, which is the same on every device
        and lhs.dtype == jnp.float32
        and lhs.shape[:3] == out[:3]
        and kernel[:2] != (1, 1)
        and channels % NATIVE_CHANNELS == 0
        and channels * examples >= NATIVE_ROWS
        and examples * bytes_of_patches > NATIVE_PATCHES
    )


FEWEST, THINNEST, CHANNELS, WIDER = 4, 16, 48, 2
"""Limits of channels on a CPU: the fewest in and out for columns and for squares, the sum of both from which there are
squares, and the channels out as a multiple of those in up to which there are columns."""

TILES, COVERED = 16, 1.55
"""The fewest tiles of a batch, and the outputs that tiles may cover as a multiple of those needed."""


def choose_tile(lhs: Array, out: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, int] | None:
    """Returns Winograd's tile with which a convolution with stride 1 is faster than in the other forms, or None.

    Within these limits squares take 0.3 to 0.75 of the time of the other forms, forwards and backwards, and at most as
    long if clients' kernels are stacked; columns take 0.24 to 0.86, and at most as long if a device is two cores
    (`benchmarks/NOTES.md`). A single example, of which the operations are counted for the bill, is never in tiles.

    Args:
      lhs: examples.
      out: shape of the result.
      kernel: shape of the kernel.
    """
    examples, *sides = out[:3]
    *places, few, many = *kernel[:2], *sorted(kernel[2:])
    if few >= THINNEST and few + many >= CHANNELS:
        tile = _winograd.SQUARE
    elif few >= FEWEST and few + many < CHANNELS and kernel[3] <= WIDER * kernel[2]:
        tile = _winograd.COLUMN
    else:
        return None
    tiles = math.prod(_winograd.count_tiles(sides, tile))
    faster = (
        jax.default_backend() == "cpu"
        and lhs.dtype in (jnp.float32, jnp.float64)
        and places == [3, 3]
        and examples > 1
        and examples * tiles >= TILES
        and tiles * math.prod(tile) <= COVERED * math.prod(sides)
    )
    return tile if faster else None


def shift(
    x: Float[Array, "b h w i"],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> list[Float[Array, "b y x i"]]:
    """Returns the slice of the examples that each entry of the kernel sees, in the order of the entries."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sides = x.shape[1:3]
    pads = lax.padtype_to_pads(sides, reach, strides, padding) if isinstance(padding, str) else padding
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((before, after, 0) for before, after in pads), (0, 0, 0)])
    ends = [n - r + 1 for n, r in zip(x.shape[1:3], reach, strict=True)]
    if min(ends) < 1:
        raise ValueError(
            f"convolution: a kernel that reaches over {reach[0]}x{reach[1]} places does not fit examples of "
            f"{sides[0]}x{sides[1]} padded by {pads}"
        )

    return [
        x[:, top : top + ends[0] : strides[0], left : left + ends[1] : strides[1]]
        for top, left in itertools.product(*(range(0, r, d) for r, d in zip(reach, dilation, strict=True)))
    ]


def check_lowered(
    lhs: tuple[int, ...], rhs: tuple[int, ...], lhs_dilation: Sequence[int] | None, dimension_numbers: Any
) -> None:
    """Raises `NotImplementedError` if a convolution of these shapes is not one of images with channels last."""
    if len(lhs) != 4 or len(rhs) != 4:
        raise NotImplementedError(
            f"convolution: examples of shape {lhs} and a kernel of shape {rhs}; only images are lowered, of shapes "
            "(examples, height, width, channels) and (height, width, channels in, channels out)"
        )
    if lax.conv_dimension_numbers(lhs, rhs, dimension_numbers) != lax.conv_dimension_numbers(lhs, rhs, CHANNELS_LAST):
        raise NotImplementedError(f"convolution: dimension_numbers is {dimension_numbers}; it must be {CHANNELS_LAST}")
    if lhs_dilation is not None and set(lhs_dilation) != {1}:
        raise NotImplementedError(f"convolution: lhs_dilation is {tuple(lhs_dilation)}; it must be (1, 1)")


def is_lowered(
    lhs: tuple[int, ...], rhs: tuple[int, ...], lhs_dilation: Sequence[int] | None, dimension_numbers: Any
) -> bool:
    """Returns whether a convolution of these shapes is one of images, or of sequences, with channels last."""
    if not len(lhs) == len(rhs) in (3, 4) or (lhs_dilation is not None and set(lhs_dilation) != {1}):
        return False
    last = CHANNELS_LAST if len(lhs) == 4 else ("NHC", "HIO", "NHC")
    return lax.conv_dimension_numbers(lhs, rhs, dimension_numbers) == lax.conv_dimension_numbers(lhs, rhs, last)
