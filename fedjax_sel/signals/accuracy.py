"""Accuracy of the new global model on the server's examples."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import ServerSignal
from fedjax_sel.pytree import static

__all__ = ["ValidationAccuracy"]


class ValidationAccuracy(ServerSignal):
    """Fraction of the validation examples whose largest logit is their label's. Costs the clients nothing.

    Attributes:
      split: `"validation"`, or `"test"` for the test examples (a leak, for parity with code that has it).

    >>> ValidationAccuracy().measure(jnp.eye(2), jnp.array([0, 0])).item()
    0.5
    """

    name: ClassVar[str] = "validation_accuracy"
    needs_classes: ClassVar[bool] = True

    split: str = static(default="validation", choices=["validation", "test"])

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, ""]:
        """Returns the mean over the examples."""
        return jnp.mean(logits.argmax(-1) == y)
