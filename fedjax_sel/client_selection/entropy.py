"""UACS-FL: the clients whose data the model is least sure of."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["Entropy"]


class Entropy(ClientSelector):
    """The `m` clients of highest mean entropy `α_i`, or with chance ε a random cohort.

    Every client is sent the global model in every round and passes all its rows through it; the paper does not count
    that.

    Attributes:
      epsilon: chance of exploring; 0 is "Entropy Based", 0.1 "Entropy+Eps-Greedy".
      temperature: of the softmax; the paper's is 1.
      per_slot: one coin for each slot instead of one a round.

    Source: UACS-FL, "Active Client Selection for Federated Learning", section "Active Client Selection". The text lets
    a client use "its local model" but sends it the global one first; we measure on the global model, `w_t`.
    """

    epsilon: Scalar = 0.1
    temperature: Scalar = 1.0
    per_slot: bool = static(default=False)

    def signals(self) -> Signals:
        """DOC."""
        return Signals(before=[signals.Entropy(self.temperature)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Nothing; checks ε and the temperature."""
        if not 0 <= np.min(self.epsilon) <= np.max(self.epsilon) <= 1:
            raise ValueError(f"entropy: epsilon is {self.epsilon}; it is the chance of exploring, from 0 to 1")
        if not np.min(self.temperature) > 0:
            raise ValueError(f"entropy: temperature is {self.temperature}; it must be above 0")
        return ()

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, entropy: Float[Array, "N"]) -> Cohort:
        """Top `m` less the explorers, and explorers drawn from everybody else."""
        key_coin, key_tie, key_explore = jax.random.split(key, 3)
        explore = jax.random.uniform(key_coin, (ctx.m if self.per_slot else 1,)) < self.epsilon  # r in [0, 1)
        exploit = ~jnp.broadcast_to(explore, (ctx.m,))
        best = top_m(key_tie, entropy, ctx.available, ctx.m)
        # The exploiting slots take the best few; a random number in [0, 1) ranks everybody else below them.
        kept = jnp.arange(ctx.m) < exploit.sum()
        chance = jax.random.uniform(key_explore, entropy.shape)
        taken = jnp.where(kept & best.mask, best.client, ctx.num_clients)
        return top_m(key_tie, chance.at[taken].set(2.0, mode="drop"), ctx.available, ctx.m)
