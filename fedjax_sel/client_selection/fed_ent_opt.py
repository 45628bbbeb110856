"""FedEntOpt: a cohort whose pooled labels are as balanced as can be."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._labels import entropy_of
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["FedEntOpt"]

NEVER = -(2**30)
"""The number of entry of a client that never entered the buffer."""

TOLERANCE = 1e-6
"""Nats by which entropies must differ; less is rounding."""


class FedEntOptState(NamedTuple):
    """What `FedEntOpt` carries from round to round.

    Attributes:
      counts: examples of each client and class.
      entry: which entry into the buffer each client's last was, from 0.
      entries: how many there were.
    """

    counts: Float[Array, "N C"]
    entry: Int[Array, "N"]
    entries: Int[Array, ""]


class FedEntOpt(ClientSelector):
    """Greedily, the clients that maximise the entropy of the cohort's pooled labels, none of them seen just now.

    The first client is drawn uniformly; the next is the one of largest `H((L + l_i) / ‖L + l_i‖₁)`, `L` the sum of the
    label counts of those chosen in this round, ties at random. Who is chosen enters a buffer, first in, first out, and
    cannot be chosen while in it; where the buffer holds everybody who can be reached, it does not count.

    Each client sends its label counts, `C` numbers, once, before the first round.

    Attributes:
      buffer: clients that the buffer holds, as a fraction of all; at most `N - m` of them, at least one.
      first: `"random"`, or `"entropy"` for the client whose own labels have the largest entropy.

    Source: Lutz et al., "Optimizing Federated Learning by Entropy-Based Client Selection", 2024,
    https://arxiv.org/abs/2411.01240, Algorithm 1. The size of the buffer is the source's to choose, in (0, N - m].

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
        """Returns the cohort, in the order in which it is chosen."""
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
            client = client.at[slot].set(jnp.where(left[best], best, -1).astype(jnp.int32))
            return client, left.at[best].set(False), pooled

        begin = (jnp.full(ctx.m, -1, jnp.int32), ctx.available, jnp.zeros(state.counts.shape[1]))
        client = jax.lax.fori_loop(0, ctx.m, choose, begin)[0]
        return cohort_of(client, client >= 0)

    def observe(self, key: PRNGKey, state: FedEntOptState, ctx: Context, cohort: Cohort) -> FedEntOptState:
        """Returns the state in which the cohort has entered the buffer, also those who returned nothing."""
        entered = cohort.client >= 0
        number = state.entries + jnp.cumsum(entered) - 1
        entry = state.entry.at[cohort.selected].set(number.astype(jnp.int32), mode="drop")
        return state._replace(entry=entry, entries=state.entries + entered.sum())

    def buffer_size(self, ctx: Context) -> Int[Array, ""]:
        """Returns how many clients the buffer holds, `Q`."""
        size = jnp.round(self.buffer * ctx.num_clients)
        return jnp.clip(size, min(1, ctx.num_clients - ctx.m), ctx.num_clients - ctx.m).astype(jnp.int32)
