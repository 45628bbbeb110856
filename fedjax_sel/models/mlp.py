"""Fully connected network."""

import flax.linen as nn
from jaxtyping import Array, Float

from fedjax_sel.catalog import check_name
from fedjax_sel.models._initial import KINDS, apply_hidden, dense
from fedjax_sel.models._sizes import check_sizes

__all__ = ["MLP"]


class MLP(nn.Module):
    """Affine maps with ReLU between them, on the flattened example.

    Attributes:
      classes: `C`.
      hidden: width of each hidden layer.
      dropout: share of each hidden layer's numbers set to zero while training, between the affine map and the ReLU.
      initial: initialisation: `"flax"` (variance 1/fan-in, biases 0) or `"torch"` (uniform in ±1/sqrt(fan-in)).

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 5), "float32")
    >>> jax.eval_shape(MLP(classes=3).init_with_output, jax.random.key(0), x)[0].shape
    (2, 3)
    """

    classes: int = 2
    hidden: tuple[int, ...] = (64, 30)
    dropout: float = 0.0
    initial: str = "flax"

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        check_name("initial of mlp:", self.initial, KINDS)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Float[Array, "b *example"], *, train: bool = False) -> Float[Array, "b C"]:
        """Returns logits."""
        x = x.reshape(x.shape[0], -1)
        x = apply_hidden(self.hidden, self.initial, self.dropout, x, train=train)
        return dense(self.classes, self.initial, x)
