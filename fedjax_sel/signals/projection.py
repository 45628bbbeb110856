"""How far a client's update goes in the direction of the global model's."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.catalog import check_name
from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.pytree import static
from fedjax_sel.types import Update, Variables


class Projection(UpdateSignal):
    """`<Δ_i, G> / ‖G‖₂` of a client's update on the global model's change; 0 where that is 0.

    The server computes it from what it received, so it costs the client nothing.

    Attributes:
      over: `"tensors"`, the mean of the projections of each tensor on its own, or `"whole"`, of all parameters
        together.
      cosine: whether it is also divided by the length of the update.
      against: `"aggregate"`, this round's change, in which the update itself has a part, or `"previous"`, the round
        before's.

    Source: Na, Liang and Yiu, "GPFL: A Gradient Projection-Based Client Selection Framework for Efficient Federated
    Learning", 2024, https://arxiv.org/abs/2403.17833, equation (3): over all parameters, against the round before; its
    code: over tensors, against this round.
    """

    name: ClassVar[str] = "projection"
    stacked: ClassVar[bool] = True

    over: str = static(default="tensors")
    cosine: bool = static(default=False)
    against: str = static(default="aggregate")

    def __check_init__(self) -> None:
        """Refuse what does not exist."""
        check_name("projection: over", self.over, ["tensors", "whole"])
        check_name("projection: against", self.against, ["aggregate", "previous"])

    def measure(self, update: Update, aggregate: Variables) -> Float[Array, ""]:
        """Projection of one update."""
        along = jax.tree.leaves(jax.tree.map(jnp.vdot, update.delta, aggregate))
        length = jax.tree.leaves(jax.tree.map(lambda g: jnp.sum(g**2), aggregate))
        own = jax.tree.leaves(jax.tree.map(lambda d: jnp.sum(d**2), update.delta))
        dots, squares, owns = (jnp.stack(part) for part in (along, length, own))
        if self.over == "whole":
            dots, squares, owns = dots.sum(), squares.sum(), owns.sum()
        divisor = jnp.sqrt(squares * owns if self.cosine else squares)
        return jnp.mean(jnp.where(divisor > 0, dots / jnp.where(divisor > 0, divisor, 1.0), 0.0))
