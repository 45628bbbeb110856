"""Residual network for small images."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.catalog import check_name
from fedjax_sel.models._blocks import convolution, images
from fedjax_sel.models._dense import Dense
from fedjax_sel.models._norm import Norm
from fedjax_sel.models._sizes import check_sizes

__all__ = ["ResNet"]


class ResNet(nn.Module):
    """Stages of residual blocks, by default of 16, 32 and 64 channels, each stage halving the resolution of the last.

    `depth = 2 stages blocks + 2`; depth 20, batch normalisation and 10 classes give 269,722 parameters (statistics not
    counted). If a block changes the shape, its shortcut takes every second pixel and pads channels with zeros, so it
    has no parameters (the source's option A), or is a 1x1 convolution with normalisation (option B). The ResNet-18 that
    is common on small images is `depth=18, widths=(64, 128, 256, 512), shortcut="projection"`: 11,173,962 parameters.

    Attributes:
      classes: `C`.
      depth: 20, 32, 44, 56, ... with three stages.
      norm: `"batch"` or `"group"`.
      widths: channels of each stage.
      shortcut: shortcut of blocks that change the shape, `"pad"` or `"projection"`.

    Source: He et al., "Deep Residual Learning for Image Recognition", 2016, https://arxiv.org/abs/1512.03385,
    section 4.2.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 8, 8, 3), "float32")
    >>> jax.eval_shape(ResNet(depth=8).init_with_output, jax.random.key(0), x)[0].shape
    (2, 10)
    """

    classes: int = 10
    depth: int = 20
    norm: str = "batch"
    widths: tuple[int, ...] = (16, 32, 64)
    shortcut: str = "pad"

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        layers = 2 * len(self.widths)
        if self.depth < layers + 2 or (self.depth - 2) % layers:
            several = ", ".join(str(layers * n + 2) for n in (3, 5, 7))
            raise ValueError(f"resnet: depth is {self.depth}; it must be {layers} n + 2, as {several}")
        check_name("shortcut of resnet:", self.shortcut, ("pad", "projection"))
        if self.shortcut == "pad" and list(self.widths) != sorted(self.widths):
            raise ValueError(
                f"resnet: widths are {self.widths}; with shortcut 'pad' none may be below the one before it"
            )
        super().__post_init__()

    @nn.compact
    def __call__(
        self, x: Float[Array, "b *example"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b C"]:
        """Returns logits; `mask` says which examples count in the statistics of a batch.

        Raises:
          ValueError: the examples are not images of at least 4x4.
        """
        x = images("resnet", x, 4)

        def normalised(x):
            return Norm(self.norm)(x, train=train, mask=mask)

        x = nn.relu(normalised(convolution(self.widths[0])(x)))
        for stage, width in enumerate(self.widths):
            for block in range((self.depth - 2) // (2 * len(self.widths))):
                stride = 2 if stage > 0 and block == 0 else 1
                y = nn.relu(normalised(convolution(width, stride=stride)(x)))
                y = normalised(convolution(width)(y))
                if stride == 2 and self.shortcut == "projection":
                    x = normalised(convolution(width, kernel=1, stride=2)(x))
                elif stride == 2:
                    added = width - x.shape[-1]
                    x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (added // 2, added - added // 2)))
                x = nn.relu(x + y)
        return Dense(self.classes)(x.mean((1, 2)))
