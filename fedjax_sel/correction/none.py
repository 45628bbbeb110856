"""Plain local training."""

from __future__ import annotations

from flax import struct
from jaxtyping import Array, Float, Int

from fedjax_sel.types import Cohort, State, Variables

__all__ = ["Nothing"]


@struct.dataclass
class Nothing:
    """The gradient as it is.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.
    """

    down = 0.0
    up = 0.0

    def init(self, variables: Variables, clients: int) -> State:
        """Nothing."""
        return ()

    def held(self, state: State, client: Int[Array, ""]) -> State:
        """Nothing."""
        return ()

    def gradient(self, held: State, gradient: Variables, variables: Variables, received: Variables) -> Variables:
        """As it is."""
        return gradient

    def upload(self, held: State, delta: Variables, steps: Int[Array, ""], rate: Float[Array, ""]) -> State:
        """Nothing."""
        return ()

    def merge(self, state: State, cohort: Cohort, uploads: State) -> State:
        """Nothing."""
        return ()
