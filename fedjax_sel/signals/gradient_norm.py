"""Norm of a client's gradient at the global model."""

from __future__ import annotations

from typing import ClassVar

import optax
from jaxtyping import Array, Float

from fedjax_sel.protocols import Cost, GradientSignal
from fedjax_sel.types import Variables

__all__ = ["GradientNorm"]


class GradientNorm(GradientSignal):
    """`‖∇F_i(w)‖₂` over all of a client's examples at once, without dropout.

    The baseline "Gradient Norm-Based" of UACS-FL; for client selection: Marnissi et al., "Client Selection in Federated
    Learning based on Gradients Importance", 2021, https://arxiv.org/abs/2111.11204.

    >>> GradientNorm().cost.backward
    1.0
    """

    name: ClassVar[str] = "gradient_norm"
    cost: ClassVar[Cost] = Cost(forward=1.0, backward=1.0, needs_model=True, up=1.0)

    def measure_gradient(self, gradient: Variables) -> Float[Array, ""]:
        """Returns the norm over all parameters together."""
        return optax.tree.norm(gradient)
