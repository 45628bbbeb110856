"""Projection of a client's update on the change of the global model."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel.arrays import widen
from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.pytree import static
from fedjax_sel.types import Update, Variables

__all__ = ["Projection"]


class Projection(UpdateSignal):
    """`<Δ_i, G> / ‖G‖₂` of a client's update on the global model's change; 0 if that is 0.

    The server computes it from what it received, so it costs the client nothing.

    Attributes:
      norm_over: `"tensors"`, the mean of the projections of each tensor separately, or `"whole"`, of all parameters
        together.
      cosine: whether it is also divided by the norm of the update.
      reference: `"aggregate"`, this round's change, to which the update itself contributes, or `"previous"`, the
        previous round's.

    Source: Na, Liang and Yiu, "GPFL: A Gradient Projection-Based Client Selection Framework for Efficient Federated
    Learning", 2024, https://arxiv.org/abs/2403.17833, equation (3): over all parameters, against the previous round.
    Its code: over tensors, against this round.

    >>> Projection(reference="previous")
    Projection(norm_over='tensors', cosine=False, reference='previous')
    """

    name: ClassVar[str] = "projection"
    stacked: ClassVar[bool] = True

    norm_over: str = static(default="tensors", choices=["tensors", "whole"])
    cosine: bool = static(default=False)
    reference: str = static(default="aggregate", choices=["aggregate", "previous"])

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, ""]:
        """Returns the projection of one update on the change that `reference` names."""
        delta, reference = widen(update.delta), widen(reference)
        along = jax.tree.leaves(jax.tree.map(jnp.vdot, delta, reference))
        length = jax.tree.leaves(jax.tree.map(lambda g: jnp.sum(g**2), reference))
        own = jax.tree.leaves(jax.tree.map(lambda d: jnp.sum(d**2), delta))
        dots, squares, owns = (jnp.stack(part) for part in (along, length, own))
        if self.norm_over == "whole":
            dots, squares, owns = dots.sum(), squares.sum(), owns.sum()
        divisor = root_of_product(squares, owns) if self.cosine else jnp.sqrt(squares)
        # GPFL, Eq. (3)
        return jnp.mean(jnp.where(divisor > 0, dots / jnp.where(divisor > 0, divisor, 1.0), 0.0))


def root_of_product(a: Float[Array, "*k"], b: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Returns `√(a b)` of numbers at least 0, even where their product is too large or too small for the type.

    >>> root_of_product(jnp.array([4.0, 2.0**100]), jnp.array([9.0, 2.0**100])) == jnp.array([6.0, 2.0**100])
    Array([ True,  True], dtype=bool)
    """
    product = a * b
    is_normal = jnp.isfinite(product) & (product >= jnp.finfo(product.dtype).tiny)
    return jnp.where(is_normal, jnp.sqrt(product), jnp.sqrt(a) * jnp.sqrt(b))
