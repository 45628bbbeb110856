"""Residual network for small images."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.models._fast_conv import Conv
from fedjax_sel.models._norm import Norm
from fedjax_sel.models._sizes import check_sizes

__all__ = ["ResNet"]


class ResNet(nn.Module):
    """Three stages of residual blocks with 16, 32 and 64 channels, each after the first at half the resolution.

    `depth = 6 blocks + 2`; with depth 20, batch normalisation and 10 classes 269,722 parameters (statistics not
    counted). Where a block changes the shape, its shortcut takes every second pixel and pads channels with zeros, so it
    has no parameters (the source's option A).

    Attributes:
      classes: `C`.
      depth: 20, 32, 44, 56, ...
      norm: `"batch"` or `"group"`.

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

    def __post_init__(self) -> None:
        """Refuses sizes that no network has."""
        check_sizes(self)
        super().__post_init__()

    @nn.compact
    def __call__(
        self, x: Float[Array, "b *example"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b C"]:
        """Logits; `mask` says which examples count in the statistics of a batch.

        Raises:
          ValueError: no such depth, or examples that are no images.
        """
        if self.depth < 8 or (self.depth - 2) % 6:
            raise ValueError(f"resnet: depth is {self.depth}; it must be 6 n + 2, as 20, 32, 44 or 56")
        if x.ndim not in (3, 4) or min(x.shape[1:3]) < 4:
            raise ValueError(
                f"resnet: an example has shape {x.shape[1:]}; it must be (height, width) or (height, width, channels), "
                "height and width at least 4"
            )
        x = x.reshape(*x.shape[:3], -1)

        def normalised(x):
            return Norm(self.norm)(x, train=train, mask=mask)

        def convolved(x, width, stride=1):
            return Conv(width, (3, 3), strides=(stride, stride), padding=1, use_bias=False, kernel_init=HE)(x)

        x = nn.relu(normalised(convolved(x, 16)))
        for stage, width in enumerate((16, 32, 64)):
            for block in range((self.depth - 2) // 6):
                stride = 2 if stage > 0 and block == 0 else 1
                y = nn.relu(normalised(convolved(x, width, stride)))
                y = normalised(convolved(y, width))
                if stride == 2:
                    added = width - x.shape[-1]
                    x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (added // 2, added - added // 2)))
                x = nn.relu(x + y)
        return nn.Dense(self.classes)(x.mean((1, 2)))


HE = nn.initializers.he_normal()
