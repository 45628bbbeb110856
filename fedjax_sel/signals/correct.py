"""Whether the model classifies an example correctly."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Cost, ExampleSignal

__all__ = ["Correct"]


class Correct(ExampleSignal):
    """1 where the largest logit is the label's, else 0; a client's value is its accuracy.

    >>> Correct().measure(jnp.eye(2), jnp.array([0, 0])).tolist()
    [1.0, 0.0]
    """

    name: ClassVar[str] = "correct"
    needs_classes: ClassVar[bool] = True
    cost: ClassVar[Cost] = Cost(forward=1.0, needs_model=True, up=1.0)

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, "b"]:
        """Returns 1 or 0 for each example."""
        return (logits.argmax(-1) == y).astype(jnp.float32)
