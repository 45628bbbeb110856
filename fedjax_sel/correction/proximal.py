"""FedProx: clients stay near the model they received."""

from __future__ import annotations

import jax

from fedjax_sel.protocols import Correction
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import StrategyState, Variables

__all__ = ["Proximal"]


class Proximal(Correction):
    """`∇F_i(w) + μ (w - w_t)`, the gradient of `F_i(w) + μ/2 ‖w - w_t‖²`.

    Attributes:
      mu: `μ`; 0 is plain local training.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks", 2020, https://arxiv.org/abs/1812.06127,
    Algorithm 2 (FedProx), its subproblem solved by the steps of the local trainer.
    """

    mu: Scalar = 0.001

    down = 0.0
    up = 0.0

    def __check_init__(self) -> None:
        """Refuse a force that pushes astep_size_sum."""
        if isinstance(self.mu, int | float) and not self.mu >= 0:
            raise ValueError(f"proximal: mu is {self.mu}; it must be 0 or above")

    def correct(
        self, client_state: StrategyState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Drawn back to the model received."""
        return jax.tree.map(lambda g, w, start: g + self.mu * (w - start), gradient, variables, received)
