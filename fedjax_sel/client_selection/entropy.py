"""UACS-FL: the clients whose data the model is least sure of."""

from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import epsilon_greedy_m
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["Entropy"]


class Entropy(ClientSelector):
    """The `m` clients of highest mean entropy `α_i`, or with probability ε a random cohort.

    Every client is sent the global model in every round and passes all its examples through it; the paper does not
    count that.

    Attributes:
      epsilon: probability of exploring; 0 is "Entropy Based", 0.1 "Entropy+Eps-Greedy".
      temperature: of the softmax, at least 1e-30; the paper's is 1.
      per_slot: whether each slot tosses its own coin, instead of one coin per round.

    Source: UACS-FL, "Active Client Selection for Federated Learning", section "Active Client Selection". The text lets
    a client use "its local model" but sends it the global one first; we measure on the global model, `w_t`.

    >>> Entropy(epsilon=0.0).signals().before
    {'entropy': Entropy(temperature=1.0)}
    """

    epsilon: Scalar = param(default=0.1, low=0, high=1)
    temperature: Scalar = param(default=1.0, low=1e-30)
    per_slot: bool = static(default=False)

    @property
    def ordered(self) -> bool:
        """Returns whether exploited members come before explored ones."""
        return self.per_slot

    def signals(self) -> Signals:
        """Returns the clients' mean entropies, before training."""
        return Signals(before=[signals.Entropy(self.temperature)])

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, entropy: Float[Array, "N"]) -> Cohort:
        """Returns the clients of highest entropy, and random other clients in the exploring slots."""
        return epsilon_greedy_m(key, entropy, ctx.available, ctx.m, self.epsilon, per_slot=self.per_slot)
