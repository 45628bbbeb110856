"""Accuracy of the new global model on the server's rows."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.catalog import check_name
from fedjax_sel.protocols import ServerSignal
from fedjax_sel.pytree import static


class ValidationAccuracy(ServerSignal):
    """Share of validation rows whose largest logit is their label's. Costs the clients nothing.

    Attributes:
      on: `"validation"`, or `"test"` for the test rows (a leak, for parity with codes that have it).
    """

    on: str = static(default="validation")

    def __check_init__(self) -> None:
        """Refuse rows that the server does not have."""
        check_name("validation signal: on", self.on, ["validation", "test"])

    name: ClassVar[str] = "validation_accuracy"

    def measure(self, logits: Float[Array, "b C"], y: Int[Array, "b"]) -> Float[Array, ""]:
        """Mean over rows."""
        return jnp.mean(logits.argmax(-1) == y)
