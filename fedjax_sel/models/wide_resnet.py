"""Wide residual network for small images."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from fedjax_sel.models._blocks import convolution, images
from fedjax_sel.models._dense import Dense
from fedjax_sel.models._norm import Norm
from fedjax_sel.models._sizes import check_sizes

__all__ = ["WideResNet"]


class WideResNet(nn.Module):
    """Three groups of pre-activation blocks with 16, 32 and 64 times `width` channels, the last two halving the image.

    `depth = 6 blocks + 4`, with as many blocks in each group; depth 16, width 1, batch normalisation and 10 classes
    give 175,066 parameters (statistics not counted). If a block changes the number of channels, its shortcut is a 1x1
    convolution of the normalised input, the one that the block's first convolution sees.

    Parts, by the names under which they can be frozen: `stem`, `group1`, `group2`, `group3` (each with `block1`,
    `block2`, ...), `norm`, `head`. If the collection `intermediates` is mutable, it gets the outputs of the groups,
    `low`, `mid` and `up`, before the next normalisation.

    Attributes:
      classes: `C`.
      depth: 10, 16, 22, 28, 40, ...
      width: the widening factor `k`.
      norm: `"batch"` or `"group"`.

    Source: Zagoruyko and Komodakis, "Wide Residual Networks", 2016, https://arxiv.org/abs/1605.07146, table 1.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 8, 8, 3), "float32")
    >>> jax.eval_shape(WideResNet(depth=10).init_with_output, jax.random.key(0), x)[0].shape
    (2, 10)
    """

    classes: int = 10
    depth: int = 16
    width: int = 1
    norm: str = "batch"

    stages: ClassVar[tuple[str, ...]] = ("stem", "group1", "group2", "group3", "norm", "head")

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        if self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(f"wide_resnet: depth is {self.depth}; it must be 6 n + 4, as 10, 16, 22, 28 or 40")
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b *example"],
        *,
        train: bool = False,
        mask: Bool[Array, "b"] | None = None,
        begin: int = 0,
        end: int | None = None,
    ) -> Float[Array, "b *out"]:
        """Returns logits; with `begin` and `end`, the output of stages `begin:end` on that of the stages before them.

        `mask` says which examples count in the statistics of a batch.

        Raises:
          ValueError: the examples are not images.
        """

        def group(i, x):
            width, blocks = 16 * 2**i * self.width, (self.depth - 4) // 6
            x = Group(width, blocks, 1 if i == 0 else 2, self.norm, name=f"group{i + 1}")(x, train=train, mask=mask)
            self.sow("intermediates", ("low", "mid", "up")[i], x)
            return x

        def pooled(x):
            return nn.relu(Norm(self.norm, name="norm")(x, train=train, mask=mask)).mean((1, 2))

        stages = (
            lambda x: convolution(16, name="stem")(images("wide_resnet", x, 4)),
            *(partial(group, i) for i in range(3)),
            pooled,
            lambda x: Dense(self.classes, name="head")(x),
        )
        for stage in stages[begin:end]:
            x = stage(x)
        return x


class Group(nn.Module):
    """Blocks of one width, the first with a stride.

    Attributes:
      width: channels.
      blocks: number of blocks.
      stride: stride of the first block.
      norm: kind of normalisation.
    """

    width: int
    blocks: int
    stride: int
    norm: str

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b y x o"]:
        """Returns the last block's output."""
        for i in range(self.blocks):
            block = Block(self.width, self.stride if i == 0 else 1, self.norm, name=f"block{i + 1}")
            x = block(x, train=train, mask=mask)
        return x


class Block(nn.Module):
    """Two 3x3 convolutions, each after normalisation and ReLU, and a shortcut.

    Attributes:
      width: channels.
      stride: stride of the first convolution and the shortcut.
      norm: kind of normalisation.
    """

    width: int
    stride: int
    norm: str

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b y x o"]:
        """Returns the block's output."""
        y = nn.relu(Norm(self.norm, name="norm1")(x, train=train, mask=mask))
        if x.shape[-1] != self.width:
            x = convolution(self.width, 1, self.stride, name="shortcut")(y)
        y = convolution(self.width, 3, self.stride, name="conv1")(y)
        y = nn.relu(Norm(self.norm, name="norm2")(y, train=train, mask=mask))
        return x + convolution(self.width, 3, name="conv2")(y)
