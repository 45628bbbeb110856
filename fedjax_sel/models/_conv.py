"""Convolution and pooling as slices, one matrix product and one maximum.

Every local step runs inside a loop, and there XLA's CPU backend is about 15 times slower at a step of the network in
`cnn` with native convolutions than with patches times a matrix (`benchmarks/convolution.py`), and nearly twice as slow
where `reduce_window` pools (measured by hand). Plain differentiation through the slices was the fastest backward pass
measured, so none is written.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["Conv", "convolution", "max_pool"]

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
    """What `jax.lax.conv_general_dilated` computes for images, without a native convolution.

    The `kh kw` shifted slices of the padded rows, side by side along the channels, times the kernel as one matrix. With
    groups of `j` channels, one such product a group. Where a group is one channel (depthwise), the sum of the slices,
    each times its weights: products that thin took longer (measured).

    Args:
      lhs: rows.
      rhs: kernel.
      window_strides: of both sides.
      padding: `SAME`, `SAME_LOWER`, `VALID`, or the zeros before and after each side.
      lhs_dilation: ones only: a transposed convolution is not lowered.
      rhs_dilation: distance of the kernel's places along both sides.
      dimension_numbers: NHWC, HWIO, NHWC only.
      feature_group_count: groups, `i / j`.
      precision: of the products.

    Raises:
      NotImplementedError: rows that are no images with channels last, or a `lhs_dilation` above 1.
      ValueError: channels that fit neither kernel nor groups, or a kernel larger than the padded rows.
    """
    check_lowered(lhs.shape, rhs.shape, lhs_dilation, dimension_numbers)
    *kernel, width, out = rhs.shape
    channels, groups = lhs.shape[-1], feature_group_count
    if channels != width * groups or out % groups:
        raise ValueError(
            f"convolution: rows of shape {lhs.shape} and a kernel of shape {rhs.shape} in {groups} group(s); it needs "
            f"{width * groups} channels in, and a number of channels out that {groups} divides"
        )
    see = functools.partial(
        shifted, kernel=kernel, strides=window_strides, padding=padding, dilation=rhs_dilation or (1, 1)
    )
    if groups > 1 and width == 1:
        weights = rhs.reshape(-1, 1, 1, 1, out)
        slices = see(jnp.repeat(lhs, out // groups, axis=-1))
        return functools.reduce(operator.add, (x * w for x, w in zip(slices, weights, strict=True)))
    slices = see(lhs)
    if groups == 1:
        patches = slices[0] if len(slices) == 1 else jnp.concatenate(slices, axis=-1)
        return jnp.matmul(patches, rhs.reshape(-1, out), precision=precision)
    image = slices[0].shape[:-1]
    patches = jnp.stack([x.reshape(*image, groups, width) for x in slices], axis=-2)
    weights = rhs.reshape(-1, width, groups, out // groups)
    return jnp.einsum("byxgkj,kjgo->byxgo", patches, weights, precision=precision).reshape(*image, out)


Conv = functools.partial(nn.Conv, conv_general_dilated=convolution)
"""`flax.linen.Conv` with the same parameters, lowered by `convolution`."""


def max_pool(x: Float[Array, "*b h w c"], window: int = 2) -> Float[Array, "*b y x c"]:
    """Maximum of each `window`-sided square; what fills no square is dropped, as by Flax's and PyTorch's default.

    Raises:
      ValueError: there is no whole square.
    """
    *batch, height, width, channels = x.shape
    down, across = height // window, width // window
    if not (down and across):
        raise ValueError(f"max_pool: rows of {height}x{width} hold no window of {window}x{window}")
    x = x[..., : down * window, : across * window, :]
    return x.reshape(*batch, down, window, across, window, channels).max((-4, -2))


def shifted(
    x: Float[Array, "b h w i"],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> list[Float[Array, "b y x i"]]:
    """What each place of the kernel sees, in the order of the kernel's places."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sides = x.shape[1:3]
    pads = lax.padtype_to_pads(sides, reach, strides, padding) if isinstance(padding, str) else padding
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((before, after, 0) for before, after in pads), (0, 0, 0)])
    ends = [n - r + 1 for n, r in zip(x.shape[1:3], reach, strict=True)]
    if min(ends) < 1:
        raise ValueError(
            f"convolution: a kernel that reaches over {reach[0]}x{reach[1]} places does not fit rows of "
            f"{sides[0]}x{sides[1]} padded by {pads}"
        )

    return [
        x[:, top : top + ends[0] : strides[0], left : left + ends[1] : strides[1]]
        for top, left in itertools.product(*(range(0, r, d) for r, d in zip(reach, dilation, strict=True)))
    ]


def check_lowered(
    lhs: tuple[int, ...], rhs: tuple[int, ...], lhs_dilation: Sequence[int] | None, dimension_numbers: Any
) -> None:
    """Raise `NotImplementedError` where a convolution of these shapes is not one of images with channels last."""
    if len(lhs) != 4 or len(rhs) != 4:
        raise NotImplementedError(
            f"convolution: rows of shape {lhs} and a kernel of shape {rhs}; only images are lowered, of shapes "
            "(rows, height, width, channels) and (height, width, channels in, channels out)"
        )
    if lax.conv_dimension_numbers(lhs, rhs, dimension_numbers) != lax.conv_dimension_numbers(lhs, rhs, CHANNELS_LAST):
        raise NotImplementedError(f"convolution: dimension_numbers is {dimension_numbers}; it must be {CHANNELS_LAST}")
    if lhs_dilation is not None and set(lhs_dilation) != {1}:
        raise NotImplementedError(f"convolution: lhs_dilation is {tuple(lhs_dilation)}; it must be (1, 1)")
