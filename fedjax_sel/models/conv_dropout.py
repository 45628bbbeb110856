"""The convolutional network with dropout of Reddi et al., the usual one for handwriting in this field."""

import flax.linen as nn
from jaxtyping import Array, Float

from fedjax_sel.models._blocks import images
from fedjax_sel.models._dense import Dense
from fedjax_sel.models._dropout import Dropout
from fedjax_sel.models._fast_conv import Conv
from fedjax_sel.models._pool import max_pool
from fedjax_sel.models._sizes import check_sizes

__all__ = ["ConvDropout"]

LEAST = 6
"""The smallest side of an image: a smaller one leaves nothing after two convolutions and the pooling."""


class ConvDropout(nn.Module):
    """Two convolutions of 3x3 without padding, max-pooling, dropout, a hidden layer, dropout, an affine map.

    1,626,442 parameters on examples of 32x32x3 with 10 classes (the CIFAR-10 benchmark of pfl-research), 1,206,590 on
    examples of 28x28 with 62 classes (FEMNIST).

    Attributes:
      classes: `C`.
      channels: channels of the two convolutions.
      hidden: width of the hidden layer.
      dropout: shares of the pooled activations, and of the hidden layer's, set to zero while training.

    Source: Reddi et al., "Adaptive Federated Optimization", 2021, https://arxiv.org/abs/2003.00295, table 4.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 12, 12, 1), "float32")
    >>> jax.eval_shape(ConvDropout(classes=3).init_with_output, jax.random.key(0), x)[0].shape
    (2, 3)
    """

    classes: int = 10
    channels: tuple[int, int] = (32, 64)
    hidden: int = 128
    dropout: tuple[float, float] = (0.25, 0.5)

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        for name in ("channels", "dropout"):
            if len(value := getattr(self, name)) != 2:
                raise ValueError(f"conv_dropout: {name} is {value}; it must be two numbers")
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Float[Array, "b *example"], *, train: bool = False) -> Float[Array, "b C"]:
        """Returns logits.

        Raises:
          ValueError: the examples are not images, or are smaller than the convolutions need.
        """
        x = images("conv_dropout", x, LEAST)
        first, second = self.channels
        x = nn.relu(Conv(first, (3, 3), padding="VALID")(x))
        x = nn.relu(max_pool(Conv(second, (3, 3), padding="VALID")(x)))
        x = Dropout(self.dropout[0])(x.reshape(x.shape[0], -1), train=train)
        x = nn.relu(Dense(self.hidden)(x))
        x = Dropout(self.dropout[1])(x, train=train)
        return Dense(self.classes)(x)
