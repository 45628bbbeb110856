"""EfficientNet for small images."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from fedjax_sel.models._blocks import Block, SqueezeExcite, inverted_residuals
from fedjax_sel.models._dense import Dense
from fedjax_sel.models._dropout import Dropout
from fedjax_sel.models._norm import Norm
from fedjax_sel.models._sizes import check_sizes

__all__ = ["EfficientNet"]


class EfficientNet(nn.Module):
    """EfficientNet-B0: sixteen inverted residual blocks with squeeze and excitation, swish throughout.

    4,020,358 parameters with 10 classes, 5,288,548 with 1000 (statistics not counted). The source halves the resolution
    five times: in the first convolution and in blocks 2, 4, 6 and 12. This model, meant for examples of 32x32, does not
    halve it in the first convolution, so that the last one sees 2x2; with `halvings` 3 it sees 4x4, at 3.6 times the
    floating-point operations.

    Parts: `stem`, `block1` to `block16`, `last` (1x1 convolution), `head`.

    Attributes:
      classes: `C`.
      norm: `"batch"` or `"group"`.
      dropout: share of the last convolution's means set to zero while training.
      drop_path: while training, an example skips block `i` of the 16, if the block has a shortcut, with probability
        `drop_path (i - 1) / 16` (stochastic depth); 0.2 in the source.
      momentum: weight of the old running averages of batch normalisation; at the source's 0.99 they need about a
        hundred steps to follow the model.
      halvings: how often the resolution is halved; of the source's five halvings, the last ones are kept. 5 for
        examples of 224x224.

    Source: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019,
    https://arxiv.org/abs/1905.11946, table 1.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 32, 32, 3), "float32")
    >>> jax.eval_shape(EfficientNet().init_with_output, jax.random.key(0), x)[0].shape
    (2, 10)
    """

    classes: int = 10
    norm: str = "batch"
    dropout: float = 0.2
    drop_path: float = 0.0
    momentum: float = 0.99
    halvings: int = 4

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        super().__post_init__()

    @nn.compact
    def __call__(
        self, x: Float[Array, "b *example"], *, train: bool = False, mask: Bool[Array, "b"] | None = None
    ) -> Float[Array, "b C"]:
        """Returns logits; `mask` says which examples count in the statistics of a batch.

        Raises:
          ValueError: `halvings` is invalid, or the examples are not images or too small to be halved that often.
        """
        x = inverted_residuals(
            "efficientnet",
            x,
            stem=STEM,
            blocks=table(self.drop_path),
            last=1280,
            act=nn.swish,
            halvings=self.halvings,
            norm=partial(Norm, self.norm, momentum=self.momentum, epsilon=1e-3),
            train=train,
            mask=mask,
        )
        x = Dropout(self.dropout)(x, train=train)
        return Dense(self.classes, name="head")(x)


STEM = 32
STAGES = (
    # expansion, channels, blocks, kernel, stride of the first block
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)


def table(drop_path: float) -> list[Block]:
    """Returns the 16 blocks, which squeeze to a quarter of their input channels."""
    blocks, channels, total = [], STEM, sum(stage[2] for stage in STAGES)
    for expansion, width, times, kernel, stride in STAGES:
        for i in range(times):
            squeeze = partial(SqueezeExcite, channels // 4, act=nn.swish)
            drop = drop_path * len(blocks) / total
            blocks.append(Block(expansion * channels, width, kernel, stride if i == 0 else 1, nn.swish, squeeze, drop))
            channels = width
    return blocks
