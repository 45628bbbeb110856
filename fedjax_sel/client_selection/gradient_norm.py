"""The clients that would move the model most."""

from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["GradientNorm"]


class GradientNorm(ClientSelector):
    """The `m` clients of largest full-batch gradient norm `‖∇F_i(w)‖₂`, ties at random.

    Every client is sent the global model in every round and passes all its examples forward and backward.

    Source: Marnissi et al., "Client Selection in Federated Learning based on Gradients Importance", 2021,
    https://arxiv.org/abs/2111.11204; the baseline "Gradient Norm-Based" of UACS-FL.

    >>> GradientNorm().signals().before
    {'gradient_norm': GradientNorm()}
    """

    def signals(self) -> Signals:
        """Returns the clients' gradient norms, before training."""
        return Signals(before=[signals.GradientNorm()])

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, gradient_norm: Float[Array, "N"]) -> Cohort:
        """Returns the top `m`."""
        return top_m(key, gradient_norm, ctx.available, ctx.m)
