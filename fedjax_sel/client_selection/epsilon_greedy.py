"""The clients of highest loss, with exploration."""

from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import epsilon_greedy_m
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["EpsilonGreedy"]


class EpsilonGreedy(ClientSelector):
    """The `m` clients of highest loss `F_i(w)`, or with probability ε random ones: the control for selection by loss.

    `epsilon=0` is greedy selection, like `power_of_choice` with `d = N`; `epsilon=1` is uniform. Every client is sent
    the global model in every round and passes all its examples through it.

    Attributes:
      epsilon: probability of exploring.
      per_slot: whether each slot tosses its own coin, instead of one coin per round.

    Source: ε-greedy; Sutton and Barto, "Reinforcement Learning: An Introduction", 2018,
    http://incompleteideas.net/book/the-book-2nd.html, section 2.2; by highest loss: Cho et al., 2020,
    https://arxiv.org/abs/2010.01243, section 4, with `d = N`.

    >>> EpsilonGreedy(epsilon=0.0).signals().before
    {'loss': Loss()}
    """

    epsilon: Scalar = param(default=0.1, low=0, high=1)
    per_slot: bool = static(default=False)

    @property
    def ordered(self) -> bool:
        """Returns whether exploited members come before explored ones."""
        return self.per_slot

    def signals(self) -> Signals:
        """Returns the clients' losses, before training."""
        return Signals(before=[signals.Loss()])

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, loss: Float[Array, "N"]) -> Cohort:
        """Returns the clients of highest loss, and random other clients in the exploring slots."""
        return epsilon_greedy_m(key, loss, ctx.available, ctx.m, self.epsilon, per_slot=self.per_slot)
