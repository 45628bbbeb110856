"""Length of a client's update."""

from typing import ClassVar

import optax
from jaxtyping import Array, Float

from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.types import Update, Variables

__all__ = ["UpdateNorm"]


class UpdateNorm(UpdateSignal):
    """`‖Δ_i‖₂` of the update as the server received it, so it costs the client nothing.

    >>> UpdateNorm().cost.up
    0.0
    """

    name: ClassVar[str] = "update_norm"
    stacked: ClassVar[bool] = True

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, ""]:
        """Returns the norm over all parameters together."""
        return optax.tree.norm(update.delta)
