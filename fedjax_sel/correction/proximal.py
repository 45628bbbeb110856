"""FedProx: clients stay near the model they received."""

from __future__ import annotations

import jax
from flax import struct
from jaxtyping import Array, Float, Int

from fedjax_sel.types import Cohort, Scalar, State, Variables

__all__ = ["Proximal"]


@struct.dataclass
class Proximal:
    """`∇F_i(w) + μ (w - w_t)`, the gradient of `F_i(w) + μ/2 ‖w - w_t‖²`.

    Attributes:
      mu: `μ`; 0 is plain local training.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks", 2020, https://arxiv.org/abs/1812.06127,
    Algorithm 2 (FedProx), its subproblem solved by the steps of the local trainer.
    """

    mu: Scalar = 0.001

    down = 0.0
    up = 0.0

    def __post_init__(self):
        """Refuse a force that pushes away."""
        if isinstance(self.mu, int | float) and not self.mu >= 0:
            raise ValueError(f"proximal: mu is {self.mu}; it must be 0 or above")

    def init(self, variables: Variables, clients: int) -> State:
        """Nothing."""
        return ()

    def held(self, state: State, client: Int[Array, ""]) -> State:
        """Nothing."""
        return ()

    def gradient(self, held: State, gradient: Variables, variables: Variables, received: Variables) -> Variables:
        """Drawn back to the model received."""
        return jax.tree.map(lambda g, w, start: g + self.mu * (w - start), gradient, variables, received)

    def upload(self, held: State, delta: Variables, steps: Int[Array, ""], rate: Float[Array, ""]) -> State:
        """Nothing."""
        return ()

    def merge(self, state: State, cohort: Cohort, uploads: State) -> State:
        """Nothing."""
        return ()
