"""Plain local training."""

from __future__ import annotations

from fedjax_sel.protocols import Correction
from fedjax_sel.types import StrategyState, Variables

__all__ = ["NoCorrection"]


class NoCorrection(Correction):
    """The gradient as it is.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.

    >>> NoCorrection().correct((), gradient=2.0, variables=1.0, received=0.0)
    2.0
    """

    def correct(
        self, client_state: StrategyState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Returns the gradient."""
        return gradient
