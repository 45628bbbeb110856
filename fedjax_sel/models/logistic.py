"""Multinomial logistic regression."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.models._sizes import check_sizes

__all__ = ["LogisticRegression"]


class LogisticRegression(nn.Module):
    """One affine map of the flattened example, zero at the start, so that every class is equally likely.

    Its kernel is Float["C features"], with a class's weights contiguous, as in scikit-learn and PyTorch: a few classes
    do not fill a processor's vector, but their features do.

    Attributes:
      classes: `C`.

    >>> import jax
    >>> x = jax.ShapeDtypeStruct((2, 5), "float32")
    >>> jax.eval_shape(LogisticRegression(classes=3).init_with_output, jax.random.key(0), x)[0].shape
    (2, 3)
    """

    affine: ClassVar[bool] = True

    classes: int = 2

    def __post_init__(self) -> None:
        """Raises `ValueError` for invalid sizes."""
        check_sizes(self)
        super().__post_init__()

    @nn.compact
    def __call__(self, x: Float[Array, "b *example"], *, train: bool = False) -> Float[Array, "b C"]:
        """Returns logits."""
        x = x.reshape(x.shape[0], -1)
        kernel = self.param("kernel", nn.initializers.zeros, (self.classes, x.shape[1]))
        bias = self.param("bias", nn.initializers.zeros, (self.classes,))
        by_class = jnp.einsum("cf,bf->cb", kernel, x)
        if jax.default_backend() == "cpu":
            # Otherwise XLA keeps the gradient of these outputs by row, and multiplies it by the rows more slowly.
            by_class = jax.lax.optimization_barrier(by_class)
        return (by_class + bias[:, None]).T
