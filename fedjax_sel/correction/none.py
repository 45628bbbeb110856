"""Plain local training."""

from __future__ import annotations

from fedjax_sel.protocols import Correction
from fedjax_sel.types import StrategyState, Variables

__all__ = ["Nothing"]


class Nothing(Correction):
    """The gradient as it is.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.
    """

    down = 0.0
    up = 0.0

    def correct(
        self, client_state: StrategyState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """As it is."""
        return gradient
