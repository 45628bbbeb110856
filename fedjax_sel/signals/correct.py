"""Whether the model is right about a row."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Price
from fedjax_sel.pytree import Pytree


class Correct(Pytree):
    """1 where the largest logit is the label's, else 0; a client's value is its accuracy."""

    name: ClassVar[str] = "correct"
    price: ClassVar[Price] = Price(forward=1.0, model=True, up=1.0)

    def rows(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Of each row."""
        return (logits.argmax(-1) == y).astype(jnp.float32)
