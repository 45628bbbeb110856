"""Length of a client's update."""

from typing import ClassVar

import optax
from jaxtyping import Array, Float

from fedjax_sel.protocols import Price
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Update, Variables


class UpdateNorm(Pytree):
    """`‖Δ_i‖₂` of the update as the server received it, so it costs the client nothing."""

    name: ClassVar[str] = "update_norm"
    price: ClassVar[Price] = Price()
    stacked: ClassVar[bool] = True

    def update(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """Norm over all parameters together."""
        return optax.tree.norm(update.delta)
