"""MobileNet for small images."""

from __future__ import annotations

from functools import partial

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from fedjax_sel.models._blocks import Block, SqueezeExcite, divisible, inverted_residuals
from fedjax_sel.models._dense import Dense
from fedjax_sel.models._dropout import Dropout
from fedjax_sel.models._norm import Norm
from fedjax_sel.models._sizes import check_sizes

__all__ = ["MobileNetV3"]


class MobileNetV3(nn.Module):
    """MobileNetV3-Small: eleven inverted residual blocks, nine with squeeze and excitation, and a hidden layer of 1024.

    1,528,106 parameters with 10 classes, 2,542,856 with 1000 (statistics not counted). The source halves the resolution
    five times: in the first convolution and in blocks 1, 2, 4 and 9. This model, meant for examples of 32x32, halves it
    in blocks 2, 4 and 9 only, so that the last convolution sees 4x4; block 1, which keeps the shape, has a shortcut.

    Parts: `stem`, `block1` to `block11`, `last` (1x1 convolution), `hidden`, `head`.

    Attributes:
      classes: `C`.
      norm: `"batch"` or `"group"`.
      dropout: share of the hidden layer's numbers set to zero while training.
      momentum: weight of the old running averages of batch normalisation; at the source's 0.99 they need about a
        hundred steps to follow the model.
      halvings: how often the resolution is halved; of the source's five halvings, the last ones are kept. 5 for
        examples of 224x224.

    Source: Howard et al., "Searching for MobileNetV3", 2019, https://arxiv.org/abs/1905.02244, table 2; without squeeze
    and excitation after the last convolution, as in torchvision, whose number of parameters it matches.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 32, 32, 3), "float32")
    >>> jax.eval_shape(MobileNetV3().init_with_output, jax.random.key(0), x)[0].shape
    (2, 10)
    """

    classes: int = 10
    norm: str = "batch"
    dropout: float = 0.2
    momentum: float = 0.99
    halvings: int = 3

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
            "mobilenet",
            x,
            stem=16,
            blocks=BLOCKS,
            last=576,
            act=nn.hard_swish,
            halvings=self.halvings,
            norm=partial(Norm, self.norm, momentum=self.momentum, epsilon=1e-3),
            train=train,
            mask=mask,
        )
        x = nn.hard_swish(Dense(1024, name="hidden")(x))
        x = Dropout(self.dropout)(x, train=train)
        return Dense(self.classes, name="head")(x)


def line(expanded: int, width: int, kernel: int, stride: int, squeeze: bool, act: str) -> Block:
    """Returns a row of the source's table, which squeezes to a quarter of the channels; `act` is its RE or HS."""
    squeezed = partial(SqueezeExcite, divisible(expanded / 4), gate=nn.hard_sigmoid)
    return Block(
        expanded, width, kernel, stride, {"RE": nn.relu, "HS": nn.hard_swish}[act], squeezed if squeeze else None
    )


BLOCKS = (
    line(16, 16, 3, 2, True, "RE"),
    line(72, 24, 3, 2, False, "RE"),
    line(88, 24, 3, 1, False, "RE"),
    line(96, 40, 5, 2, True, "HS"),
    line(240, 40, 5, 1, True, "HS"),
    line(240, 40, 5, 1, True, "HS"),
    line(120, 48, 5, 1, True, "HS"),
    line(144, 48, 5, 1, True, "HS"),
    line(288, 96, 5, 2, True, "HS"),
    line(576, 96, 5, 1, True, "HS"),
    line(576, 96, 5, 1, True, "HS"),
)
