"""Building blocks of networks for images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from fedjax_sel.models._dense import Dense
from fedjax_sel.models._fast_conv import Conv
from fedjax_sel.models._norm import Norm

HE = nn.initializers.he_normal()


def images(model: str, x: Float[Array, "b *example"], least: int) -> Float[Array, "b h w c"]:
    """Returns examples with one axis of channels.

    Raises:
      ValueError: the examples are not images, or one of their sides is below `least`.
    """
    if x.ndim not in (3, 4) or min(x.shape[1:3]) < least:
        raise ValueError(
            f"{model}: an example has shape {x.shape[1:]}; it must be (height, width) or (height, width, channels), "
            f"height and width at least {least}"
        )
    return x.reshape(*x.shape[:3], -1)


def divisible(width: float) -> int:
    """Returns the multiple of 8 nearest to `width`, the larger if tied, at least 8 and at least 90 % of `width`.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018,
    https://arxiv.org/abs/1801.04381, its code.

    >>> [divisible(width) for width in (4, 18, 24, 36, 60)]
    [8, 24, 24, 40, 64]
    """
    nearest = max(8, int(width + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * width else nearest + 8


def convolution(width: int, kernel: int = 3, stride: int = 1, groups: int = 1, *, name: str | None = None) -> nn.Conv:
    """Returns a convolution without bias, padded to keep the resolution except for the stride."""
    return Conv(
        width,
        (kernel, kernel),
        strides=(stride, stride),
        padding=kernel // 2,
        feature_group_count=groups,
        use_bias=False,
        kernel_init=HE,
        name=name,
    )


class ConvNorm(nn.Module):
    """A padded convolution without bias, then normalisation and `act`.

    Attributes:
      width: channels out.
      kernel: side of the kernel.
      stride: along both sides.
      groups: of channels in; as many as there are channels make it depthwise.
      act: the activation; `None` for none.
      norm: makes the normalisation.
    """

    width: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1
    act: Callable | None = nn.relu
    norm: Callable[..., nn.Module] = Norm

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b y x o"]:
        """Returns the convolved examples."""
        x = convolution(self.width, self.kernel, self.stride, self.groups, name="conv")(x)
        x = self.norm(name="norm")(x, train=train, mask=mask)
        return x if self.act is None else self.act(x)


class SqueezeExcite(nn.Module):
    """Multiplies each channel by a factor that two affine maps compute from the means of an example's channels.

    Attributes:
      width: width between the maps.
      act: activation after the first map.
      gate: activation after the second map; it gives the factors.

    Source: Hu et al., "Squeeze-and-Excitation Networks", 2018, https://arxiv.org/abs/1709.01507.
    """

    width: int
    act: Callable = nn.relu
    gate: Callable = nn.sigmoid

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h w c"]:
        """Returns the scaled examples."""
        squeezed = self.act(Dense(self.width, name="squeeze")(x.mean((1, 2))))
        return x * self.gate(Dense(x.shape[-1], name="excite")(squeezed))[:, None, None, :]


class InvertedResidual(nn.Module):
    """1x1 expansion, depthwise convolution, squeeze and excitation, and 1x1 projection of the channels.

    If the block keeps the shape, its input is added. If `expanded` is the number of input channels, there is no
    expansion.

    Attributes:
      expanded: channels inside the block.
      width: output channels.
      kernel: side of the depthwise convolution.
      stride: stride of the depthwise convolution.
      act: activation after each convolution except the projection.
      norm: makes the normalisation after each convolution.
      squeeze: makes squeeze and excitation; `None` for none.
      drop: probability that an example skips the block while training, if the input is added.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018,
    https://arxiv.org/abs/1801.04381.
    """

    expanded: int
    width: int
    kernel: int = 3
    stride: int = 1
    act: Callable = nn.relu
    norm: Callable[..., nn.Module] = Norm
    squeeze: Callable[..., nn.Module] | None = None
    drop: float = 0.0

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b y x o"]:
        """Returns the block's output."""
        channels, y = x.shape[-1], x
        if self.expanded != channels:
            y = ConvNorm(self.expanded, 1, act=self.act, norm=self.norm, name="expand")(y, train=train, mask=mask)
        y = ConvNorm(
            self.expanded, self.kernel, self.stride, self.expanded, self.act, norm=self.norm, name="depthwise"
        )(y, train=train, mask=mask)
        if self.squeeze is not None:
            y = self.squeeze(name="squeeze_excite")(y)
        y = ConvNorm(self.width, 1, act=None, norm=self.norm, name="project")(y, train=train, mask=mask)
        if self.stride > 1 or self.width != channels:
            return y
        return x + nn.Dropout(self.drop, broadcast_dims=(1, 2, 3), deterministic=not train)(y)


class Block(NamedTuple):
    """A row of a network's table: the fields of its `InvertedResidual` that differ between blocks."""

    expanded: int
    width: int
    kernel: int
    stride: int
    act: Callable
    squeeze: Callable[..., nn.Module] | None
    drop: float = 0.0


def inverted_residuals(
    model: str,
    x: Float[Array, "b *example"],
    *,
    stem: int,
    blocks: Sequence[Block],
    last: int,
    act: Callable,
    halvings: int,
    norm: Callable[..., nn.Module],
    train: bool,
    mask: Bool[Array, "b"] | None,
) -> Float[Array, "b last"]:
    """Returns the channels' means after a 3x3 convolution, a table of blocks and a 1x1 convolution.

    It adds `stem`, `block1`, `block2`, ..., `last` to the module that calls it.

    Args:
      model: the model's name in errors.
      x: examples.
      stem: channels of the first convolution, whose stride is 2.
      blocks: the table.
      last: channels of the last convolution.
      act: activation after the first and the last convolution.
      halvings: number of strides of 2 that are kept, the last ones; earlier ones become 1.
      norm: makes the normalisation after each convolution.
      train: whether the model trains.
      mask: examples that count in the statistics of a batch.

    Raises:
      ValueError: there are fewer strides of 2, or examples are not images, or too small to be halved.
    """
    strides = [2, *(block.stride for block in blocks)]
    most = strides.count(2)
    if not 0 <= halvings <= most:
        raise ValueError(f"{model}: halvings is {halvings}; it must be 0 to {most}")
    strides = [1 if strides[: i + 1].count(2) <= most - halvings else stride for i, stride in enumerate(strides)]
    x = images(model, x, 2**halvings)
    x = ConvNorm(stem, 3, strides[0], act=act, norm=norm, name="stem")(x, train=train, mask=mask)
    for i, (block, stride) in enumerate(zip(blocks, strides[1:], strict=True), 1):
        inverted = InvertedResidual(**block._replace(stride=stride)._asdict(), norm=norm, name=f"block{i}")
        x = inverted(x, train=train, mask=mask)
    x = ConvNorm(last, 1, act=act, norm=norm, name="last")(x, train=train, mask=mask)
    return x.mean((1, 2))
