"""FedProx: clients stay near the model they received."""

from __future__ import annotations

import math

import jax

from fedjax_sel.arrays import keep_types
from fedjax_sel.protocols import Correction
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import StrategyState, Variables

__all__ = ["Proximal"]


class Proximal(Correction):
    """`∇F_i(w) + μ (w - w_t)`, the gradient of `F_i(w) + μ/2 ‖w - w_t‖²`.

    Attributes:
      mu: `μ`; 0 is plain local training.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks", 2020, https://arxiv.org/abs/1812.06127,
    FedProx; the local trainer's steps solve its subproblem.

    >>> Proximal(mu=0.5).correct((), gradient=2.0, variables=1.0, received=0.0)
    2.5
    """

    mu: Scalar = param(default=0.001, low=0, below=math.inf)

    pulls = True

    def correct(
        self, client_state: StrategyState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Returns the gradient of the proximal objective."""
        # the gradient of h(w; w_t) = F_i(w) + μ/2 ‖w - w_t‖²
        pulled = jax.tree.map(lambda g, w, start: g + self.mu * (w - start), gradient, variables, received)
        return keep_types(pulled, gradient)
