"""Transformer encoder for texts."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from fedjax_sel.models._attention import EncoderBlock, check_heads, sinusoids
from fedjax_sel.models._call import TakesTokens
from fedjax_sel.models._dropout import Dropout
from fedjax_sel.models._sizes import check_sizes

__all__ = ["Transformer"]


class Transformer(TakesTokens, nn.Module):
    """Token embedding, encoder blocks, the mean over the positions that hold a token, and an affine map.

    An example is a row of token ids, from 0 to `vocabulary - 1`; positions with `padding` are ignored. The task must
    not normalise the ids: `Task.on(model, dataset, normalise=False)`, or `model.normalise=false` in a configuration.

    Attributes:
      classes: `C`.
      vocabulary: number of tokens.
      width: width of each position's embedding; even.
      depth: number of blocks.
      heads: attention heads; they divide the width.
      hidden: width between the two affine maps of each block.
      dropout: share of the activations set to zero while training, after the embedding and in each block.
      padding: id of the positions that hold no token.

    Source: Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762, the encoder, normalised
    before each part (Xiong et al., 2020).

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 12), "int32")
    >>> jax.eval_shape(Transformer(classes=3).init_with_output, jax.random.key(0), x)[0].shape
    (2, 3)
    """

    classes: int = 2
    vocabulary: int = 1000
    width: int = 64
    depth: int = 2
    heads: int = 4
    hidden: int = 128
    dropout: float = 0.0
    padding: int = 0

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        check_heads("transformer", self.width, self.heads)
        if self.width % 2:
            raise ValueError(f"transformer: width is {self.width}; it must be even")
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Shaped[Array, "b places"], *, train: bool = False) -> Float[Array, "b C"]:
        """Returns logits.

        Raises:
          ValueError: an example is not a row of token ids.
        """
        if x.ndim != 2:
            raise ValueError(
                f"transformer: an example has shape {x.shape[1:]}; it must be a row of token ids, (places,)"
            )
        tokens = x.astype(jnp.int32)
        counts = tokens != self.padding
        y = nn.Embed(self.vocabulary, self.width, embedding_init=nn.initializers.normal(1.0), name="embed")(tokens)
        y = Dropout(self.dropout)(y + sinusoids(*y.shape[1:])[None], train=train)
        for i in range(self.depth):
            y = EncoderBlock(self.heads, self.hidden, self.dropout, name=f"block{i + 1}")(y, counts, train=train)
        y = nn.LayerNorm(name="norm")(y)
        kept = counts[:, :, None].astype(y.dtype)
        pooled = jnp.sum(y * kept, axis=1) / jnp.maximum(kept.sum(1), 1.0)
        return nn.Dense(self.classes, name="head")(pooled)
