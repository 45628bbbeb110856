"""Convolutional network for images."""

import flax.linen as nn
from jaxtyping import Array, Float

from fedjax_sel.catalog import check_name
from fedjax_sel.models._fast_conv import Conv, fast_convolution
from fedjax_sel.models._initial import KINDS, apply_hidden, dense, init_options
from fedjax_sel.models._pool import max_pool
from fedjax_sel.models._sizes import check_sizes
from fedjax_sel.models._thin_conv import are_thin, convolve_thin, pool_thin
from fedjax_sel.pytree import is_whole

__all__ = ["CNN"]


class CNN(nn.Module):
    """Convolutions without padding, with max-pooling between them, then affine maps; ReLU after each but the last.

    The default is FedCor's network for CIFAR-10: 122,570 parameters on examples of 32x32x3. LeNet-5 with max-pooling
    and ReLU is `CNN(channels=(6, 16), hidden=(120, 84), kernel=5, pooled=2)`: 62,006 parameters there, and 44,426 on
    examples of 28x28.

    Attributes:
      classes: `C`.
      channels: channels of each convolution.
      hidden: width of each hidden layer after the convolutions.
      kernel: side of the convolutions.
      pooled: how many convolutions, from the first on, are followed by pooling; None: all but the last.
      dropout: share of each hidden layer's numbers set to zero while training, between the affine map and the ReLU.
      initial: initialisation: `"flax"` (variance 1/fan-in, biases 0) or `"torch"` (uniform in ±1/sqrt(fan-in)).

    Source: Tang et al., "FedCor: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated
    Learning", CVPR 2022, https://arxiv.org/abs/2103.13822, and its code.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 12, 12, 3), "float32")
    >>> jax.eval_shape(CNN(channels=(4, 4), hidden=(8,)).init_with_output, jax.random.key(0), x)[0].shape
    (2, 10)
    """

    classes: int = 10
    channels: tuple[int, ...] = (32, 64, 64)
    hidden: tuple[int, ...] = (64,)
    kernel: int = 3
    pooled: int | None = None
    dropout: float = 0.0
    initial: str = "flax"

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        check_name("initial of cnn:", self.initial, KINDS)
        if self.pooled is not None and not (is_whole(self.pooled) and 0 <= self.pooled <= len(self.channels)):
            raise ValueError(
                f"cnn: pooled is {self.pooled!r}; it must be 0 to {len(self.channels)}, the number of convolutions, or "
                "None for all but the last"
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Float[Array, "b *example"], *, train: bool = False) -> Float[Array, "b C"]:
        """Returns logits.

        Raises:
          ValueError: the examples are not images, or are smaller than the convolutions need.
        """
        example = x.shape[1:]
        if len(example) not in (2, 3) or min(example[:2]) < self.smallest_side:
            raise ValueError(
                f"cnn: an example has shape {example}; it must be (height, width) or (height, width, channels), height "
                f"and width at least {self.smallest_side} for {len(self.channels)} convolutions with kernel "
                f"{self.kernel}"
            )
        x = x.reshape(*x.shape[:3], -1)
        thin = self.num_pooled == len(self.channels) and are_thin(len(x), self.channels)
        convolve, pool = (convolve_thin, pool_thin) if thin else (fast_convolution, max_pool)
        for i, width in enumerate(self.channels):
            begin = init_options(self.initial, self.kernel**2 * x.shape[-1])
            x = Conv(width, (self.kernel, self.kernel), padding="VALID", conv_general_dilated=convolve, **begin)(x)
            if i < self.num_pooled:
                x = pool(x)
            x = nn.relu(x)  # after pooling, with the same result, on a quarter of the numbers
        x = x.reshape(x.shape[0], -1)
        x = apply_hidden(self.hidden, self.initial, self.dropout, x, train=train)
        return dense(self.classes, self.initial, x)

    @property
    def num_pooled(self) -> int:
        """Returns how many convolutions are followed by pooling."""
        return len(self.channels) - 1 if self.pooled is None else self.pooled

    @property
    def smallest_side(self) -> int:
        """The smallest height and width that leave each convolution and pooling something to see."""
        side = 1
        for i in reversed(range(len(self.channels))):
            side = (2 * side if i < self.num_pooled else side) + self.kernel - 1
        return side
