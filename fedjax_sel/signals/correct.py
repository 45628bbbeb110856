"""Whether the model is right about a row."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Cost, ExampleSignal


class Correct(ExampleSignal):
    """1 where the largest logit is the label's, else 0; a client's value is its accuracy."""

    name: ClassVar[str] = "correct"

    @property
    def cost(self) -> Cost:
        """DOC."""
        return Cost(forward=1.0, needs_model=True, up=1.0)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Of each row."""
        return (logits.argmax(-1) == y).astype(jnp.float32)
