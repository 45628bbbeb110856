"""UACS-FL: the clients whose data the model is least sure of."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import top_by_noise
from fedjax_sel.protocols import ClientSelector, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["Entropy"]


class Entropy(ClientSelector):
    """The `m` clients of highest mean entropy `α_i`, or with chance ε a random cohort.

    Every client is sent the global model in every round and passes all its examples through it; the paper does not
    count that.

    Attributes:
      epsilon: chance of exploring; 0 is "Entropy Based", 0.1 "Entropy+Eps-Greedy".
      temperature: of the softmax; the paper's is 1.
      per_slot: one coin for each slot instead of one a round.

    Source: UACS-FL, "Active Client Selection for Federated Learning", section "Active Client Selection". The text lets
    a client use "its local model" but sends it the global one first; we measure on the global model, `w_t`.

    >>> Entropy(epsilon=0.0).signals().before
    {'entropy': Entropy(temperature=1.0)}
    """

    epsilon: Scalar = param(default=0.1, low=0, high=1)
    temperature: Scalar = param(default=1.0, above=0)
    per_slot: bool = static(default=False)

    def signals(self) -> Signals:
        """Returns the clients' mean entropies, before training."""
        return Signals(before=[signals.Entropy(self.temperature)])

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context, *, entropy: Float[Array, "N"]) -> Cohort:
        """Returns the top `m` less the explorers, and explorers drawn from everybody else."""
        key_coin, key_tie, key_explore = jax.random.split(key, 3)
        noise = jax.random.uniform(key_tie, entropy.shape)  # settles ties of entropies, and of those taken
        # Active Client Selection, step 1: a random number r in [0, 1)
        explore = jax.random.uniform(key_coin, (ctx.m if self.per_slot else 1,)) < self.epsilon
        exploit = ~jnp.broadcast_to(explore, (ctx.m,))
        # Step 2: the exploiting slots take the best few; a random number in [0, 1) ranks everybody else below them
        best = top_by_noise(noise, entropy, ctx.available, ctx.m)
        kept = jnp.arange(ctx.m) < exploit.sum()
        chance = jax.random.uniform(key_explore, entropy.shape)
        taken = jnp.where(kept & best.mask, best.client, ctx.num_clients)
        return top_by_noise(noise, chance.at[taken].set(2.0, mode="drop"), ctx.available, ctx.m)
