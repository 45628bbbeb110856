"""FedEntOpt: a cohort whose pooled labels are as balanced as possible."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._labels import entropy_of
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey

__all__ = ["FedEntOpt"]

NEVER = -(2**30)
"""Entry number of a client that never entered the buffer."""

TOLERANCE = 1e-6
"""Smallest difference of two entropies, in nats, that is not rounding."""


class FedEntOptState(NamedTuple):
    """What `FedEntOpt` carries from round to round.

    Attributes:
      counts: examples of each client and class.
      entry: number of each client's last entry into the buffer, from 0.
      entries: number of entries so far.
    """

    counts: Float[Array, "N C"]
    entry: Int[Array, "N"]
    entries: Int[Array, ""]


class FedEntOpt(ClientSelector):
    """The clients that greedily maximise the entropy of the cohort's pooled labels, none of them selected recently.

    The first client is drawn uniformly. Each next one has the largest `H((L + l_i) / ‖L + l_i‖₁)`, with `L` the sum of
    the label counts of those chosen in this round; ties are broken at random. After a round its clients enter a
    first-in, first-out buffer, in the order chosen, and none can be chosen while in it; if the buffer holds all
    available clients, it is ignored.

    Each client sends its label counts, `C` numbers, once, before the first round.

    Attributes:
      buffer: size of the buffer, as a fraction of all clients; at most `N - m` and at least one client.
      first: `"random"`, or `"entropy"` for the client whose own labels have the largest entropy.

    Source: Lutz et al., "Optimizing Federated Learning by Entropy-Based Client Selection", 2024,
    https://arxiv.org/abs/2411.01240, Algorithm 1. The source leaves the size of the buffer free, in (0, N - m].

    >>> list(FedEntOpt().signals().upfront)
    ['label_counts']
    """

    buffer: Scalar = param(default=0.7, low=0, high=1)
    first: str = static(default="random", choices=["random", "entropy"])

    def signals(self) -> Signals:
        """Returns the clients' label counts, once."""
        return Signals(upfront=[signals.LabelCounts()])

    def init(self, key: PRNGKey, ctx: Context, host: Host, *, label_counts: Int[Array, "N C"]) -> FedEntOptState:
        """Returns the label counts, and an empty buffer."""
        entry = jnp.full(ctx.num_clients, NEVER, jnp.int32)
        return FedEntOptState(label_counts.astype(jnp.float32), entry, jnp.zeros((), jnp.int32))

    def select(self, key: PRNGKey, state: FedEntOptState, ctx: Context) -> Cohort:
        """Returns the cohort, in the order chosen."""
        outside = state.entry < state.entries - self.buffer_size(ctx)

        def choose(slot, carry):  # Alg. 1
            client, left, pooled = carry
            free = jnp.where((left & outside).any(), left & outside, left)
            worth = jnp.where(free, entropy_of(pooled[None] + state.counts), -jnp.inf)
            if self.first == "random":
                worth = jnp.where(free & (slot == 0), 0.0, worth)
            noise = jax.random.uniform(jax.random.fold_in(key, slot), worth.shape)
            best = jnp.argmax(jnp.where(free & (worth >= worth.max() - TOLERANCE), noise, -1.0))
            pooled = pooled + jnp.where(left[best], state.counts[best], 0.0)
            client = client.at[slot].set(jnp.where(left[best], best, PAD_CLIENT).astype(jnp.int32))
            return client, left.at[best].set(False), pooled

        begin = (jnp.full(ctx.m, PAD_CLIENT, jnp.int32), ctx.available, jnp.zeros(state.counts.shape[1]))
        client = jax.lax.fori_loop(0, ctx.m, choose, begin)[0]
        return cohort_of(client, client >= 0)

    def observe(self, key: PRNGKey, state: FedEntOptState, ctx: Context, cohort: Cohort) -> FedEntOptState:
        """Returns the state with the cohort in the buffer, including members that returned nothing."""
        entered = cohort.client >= 0
        number = state.entries + jnp.cumsum(entered) - 1
        entry = state.entry.at[cohort.selected].set(number.astype(jnp.int32), mode="drop")
        return state._replace(entry=entry, entries=state.entries + entered.sum())

    def buffer_size(self, ctx: Context) -> Int[Array, ""]:
        """Returns how many clients the buffer holds, `Q`."""
        size = jnp.round(self.buffer * ctx.num_clients)
        return jnp.clip(size, min(1, ctx.num_clients - ctx.m), ctx.num_clients - ctx.m).astype(jnp.int32)
