"""Norm of a client's update."""

from typing import ClassVar

import optax
from jaxtyping import Array, Float

from fedjax_sel.arrays import widen
from fedjax_sel.protocols import Cost, UpdateSignal
from fedjax_sel.pytree import static
from fedjax_sel.types import Update, Variables

__all__ = ["UpdateNorm"]


class UpdateNorm(UpdateSignal):
    """`‖Δ_i‖₂` of the update as the server received it, so it costs the client nothing.

    Attributes:
      sends, receives: numbers sent up and down if the client measures the norm itself, before its update is requested.

    >>> UpdateNorm().cost.up, UpdateNorm(sends=1).cost.up
    (0.0, 1.0)
    """

    name: ClassVar[str] = "update_norm"
    stacked: ClassVar[bool] = True

    sends: int = static(default=0, low=0)
    receives: int = static(default=0, low=0)

    @property
    def cost(self) -> Cost:
        """Returns the cost: the numbers that are sent and received."""
        return Cost(up=float(self.sends), down=float(self.receives))

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, ""]:
        """Returns the norm over all parameters together."""
        return optax.tree.norm(widen(update.delta))
