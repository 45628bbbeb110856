"""Building blocks of networks with attention."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fedjax_sel.models._dropout import Dropout

__all__ = ["EncoderBlock", "check_heads", "sinusoids"]


class EncoderBlock(nn.Module):
    """`y = x + A(N(x))`, then `y + F(N(y))`: self-attention over unmasked positions, and two affine maps with GELU.

    Attributes:
      heads: attention heads; they divide the width of `x`.
      hidden: width between the two affine maps.
      dropout: share of the outputs of `A` and `F` set to zero while training.

    Source: Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762, section 3; normalised
    before each part as in Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020,
    https://arxiv.org/abs/2002.04745, figure 1b.
    """

    heads: int
    hidden: int
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self, x: Float[Array, "b places width"], counts: Bool[Array, "b places"] | None = None, *, train: bool = False
    ) -> Float[Array, "b places width"]:
        """Returns the block's output; `counts` says which positions are attended to; None: all."""
        width = x.shape[-1]
        seen = None if counts is None else counts[:, None, None, :]
        y = nn.LayerNorm(name="norm1")(x)
        y = nn.MultiHeadDotProductAttention(self.heads, deterministic=True, name="attention")(y, mask=seen)
        x = x + Dropout(self.dropout)(y, train=train)
        y = nn.Dense(self.hidden, name="expand")(nn.LayerNorm(name="norm2")(x))
        y = nn.Dense(width, name="project")(nn.gelu(y, approximate=False))
        return x + Dropout(self.dropout)(y, train=train)


def check_heads(model: str, width: int, heads: int) -> None:
    """Raises `ValueError` if the heads do not divide the width.

    >>> check_heads("vit", 10, 3)
    Traceback (most recent call last):
    ValueError: vit: heads is 3 and width is 10; the heads must divide the width
    """
    if width % heads:
        raise ValueError(f"{model}: heads is {heads} and width is {width}; the heads must divide the width")


def sinusoids(places: int, width: int) -> Float[Array, "places width"]:
    """Returns `sin(p / 10000^(2k/width))` in the first half of the columns, and the cosine in the second.

    Source: Vaswani et al., 2017, section 3.5, whose columns alternate; permuting columns does not change the model.

    >>> sinusoids(1, 4)
    Array([[0., 0., 1., 1.]], dtype=float32)
    """
    angle = np.arange(places)[:, None] / 10_000 ** (2 * np.arange(width // 2) / width)[None]
    return jnp.asarray(np.concatenate([np.sin(angle), np.cos(angle)], axis=1), jnp.float32)
