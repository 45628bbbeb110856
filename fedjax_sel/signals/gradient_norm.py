"""Norm of a client's gradient at the global model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import optax
from jaxtyping import Array, Float

from fedjax_sel.protocols import ClientSignal, Cost
from fedjax_sel.types import Batch, PRNGKey, Variables

if TYPE_CHECKING:
    from fedjax_sel.task import Task


__all__ = ["GradientNorm"]


class GradientNorm(ClientSignal):
    """`‖∇F_i(w)‖₂` over all of a client's examples at once, without dropout.

    The baseline "Gradient Norm-Based" of UACS-FL; for client selection: Marnissi et al., "Client Selection in Federated
    Learning based on Gradients Importance", 2021, https://arxiv.org/abs/2111.11204.

    >>> GradientNorm().cost.backward
    1.0
    """

    name: ClassVar[str] = "gradient_norm"

    @property
    def cost(self) -> Cost:
        """Returns the cost: a forward and a backward pass, and one number."""
        return Cost(forward=1.0, backward=1.0, needs_model=True, up=1.0)

    def measure(self, task: Task, variables: Variables, batch: Batch, key: PRNGKey) -> Float[Array, ""]:
        """Returns the norm over all parameters together."""
        return optax.tree.norm(task.gradient(variables, batch))
