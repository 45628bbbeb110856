"""Vision transformer."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.models._attention import EncoderBlock, check_heads
from fedjax_sel.models._blocks import images
from fedjax_sel.models._dropout import Dropout
from fedjax_sel.models._sizes import check_sizes

__all__ = ["ViT"]


class ViT(nn.Module):
    """Square patches embedded by one affine map, a class token, encoder blocks, and an affine map of that token.

    The default suits images with sides of 28 to 32 pixels: 0.8 million parameters. With patches of 16, width 192, depth
    12, 3 heads and a hidden width of 768 it is ViT-Ti/16: 5,717,416 parameters on 224x224x3 with 1000 classes. Patches
    are cut by reshaping, without a convolution.

    Attributes:
      classes: `C`.
      patch: side of a patch; it divides height and width.
      width: width of each patch's embedding.
      depth: number of blocks.
      heads: attention heads; they divide the width.
      hidden: width between the two affine maps of each block.
      dropout: share of the activations set to zero while training, after the embedding and in each block.

    Source: Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", 2021,
    https://arxiv.org/abs/2010.11929, Eq. (1) to (4); initial values and the places of dropout are ours.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 8, 8, 3), "float32")
    >>> jax.eval_shape(ViT(depth=1).init_with_output, jax.random.key(0), x)[0].shape
    (2, 10)
    """

    classes: int = 10
    patch: int = 4
    width: int = 128
    depth: int = 6
    heads: int = 4
    hidden: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        check_heads("vit", self.width, self.heads)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Float[Array, "b *example"], *, train: bool = False) -> Float[Array, "b C"]:
        """Returns logits.

        Raises:
          ValueError: the examples are not images, or the patches do not divide them.
        """
        x = images("vit", x, self.patch)
        b, height, width, channels = x.shape
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"vit: patch is {self.patch}, but an example has shape {x.shape[1:]}; the patch must divide height and "
                "width"
            )
        x = x.reshape(b, height // self.patch, self.patch, width // self.patch, self.patch, channels)
        patches = x.transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, self.patch**2 * channels)
        y = nn.Dense(self.width, name="embed")(patches)
        token = self.param("token", nn.initializers.zeros, (1, 1, self.width))
        y = jnp.concatenate([jnp.broadcast_to(token, (b, 1, self.width)), y], axis=1)
        y = y + self.param("position", nn.initializers.normal(0.02), (1, *y.shape[1:]))  # Eq. (1)
        y = Dropout(self.dropout)(y, train=train)
        for i in range(self.depth):
            y = EncoderBlock(self.heads, self.hidden, self.dropout, name=f"block{i + 1}")(
                y, train=train
            )  # Eq. (2), (3)
        y = nn.LayerNorm(name="norm")(y[:, 0])  # Eq. (4)
        return nn.Dense(self.classes, name="head")(y)
