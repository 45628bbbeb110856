"""FedCS: as many clients as fit before a deadline."""

import math

import jax
import jax.numpy as jnp

from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection._system import check_devices
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["FedCS"]


class FedCS(ClientSelector):
    """Adds the client that lengthens the round least, one at a time, as long as it meets the deadline; at most `m`.

    All members receive the model by one multicast, as slow as the slowest receiver (`T^d`), compute in parallel
    (`t^UD`) and upload one after another (`t^UL`), until `Θ`. Adding client `i` moves

        Θ to max(Θ, t_i^UD) + t_i^UL,      T^d to max(T^d, t_i^d),

    and the client with the smallest sum of the two increments is next. A client with which `T^d + Θ` reaches the
    deadline is excluded for good, since both only grow. Slots that no client fits stay empty. Ties are broken at
    random.

    The devices' properties cost nothing here, though the source asks for them in every round.

    This deadline is for planning only; `Experiment.deadline` sets what happens to clients that miss one. On the
    simulated clock uploads run in parallel, so rounds end no later than planned.

    Attributes:
      deadline: seconds of a round, without the server's own work; infinite: always `m` clients.
      fraction: fraction of the available clients, in (0, 1], drawn at random each round and asked for their resources.

    Source: Nishio and Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
    2019, https://arxiv.org/abs/1804.08333, Algorithm 3.

    >>> FedCS(deadline=180.0)
    FedCS(deadline=180.0, fraction=1.0)
    """

    deadline: Scalar = param(default=math.inf, above=0)
    fraction: Scalar = param(default=1.0, above=0, high=1)

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Returns no state; raises `ValueError` without devices."""
        check_devices("fedcs", ctx)
        return ()

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns the clients that fit, earliest finish first."""
        assert ctx.timing is not None
        t, n = ctx.timing, ctx.num_clients
        key_asked, key_ties = jax.random.split(key)
        rank = jnp.argsort(jnp.argsort(jnp.where(ctx.available, jax.random.uniform(key_asked, (n,)), 2.0)))
        most = jnp.maximum(jnp.ceil(self.fraction * ctx.available.sum() - 1e-4), 1)
        asked = ctx.available & (rank < most)
        ties = jax.random.uniform(key_ties, (n,))

        def add(slot, carry):
            free, client, mask, uploads, multicast = carry
            spread = jnp.maximum(multicast, t.download)  # T^d with each of them
            ends = jnp.maximum(uploads, t.compute) + t.upload  # Θ with each of them
            fits = free & (spread + ends < self.deadline)
            longer = jnp.where(fits, spread - multicast + ends - uploads, jnp.inf)  # Alg. 3, the argmax's objective
            best = jnp.argmax(jnp.where(fits & (longer == longer.min()), ties, -1.0))
            some = fits.any()
            return (
                fits & (jnp.arange(n) != best),
                client.at[slot].set(best.astype(jnp.int32)),
                mask.at[slot].set(some),
                jnp.where(some, ends[best], uploads),
                jnp.where(some, spread[best], multicast),
            )

        nobody, zero = jnp.zeros(ctx.m, jnp.int32), jnp.zeros(())
        _, client, mask, _, _ = jax.lax.fori_loop(0, ctx.m, add, (asked, nobody, nobody > 0, zero, zero))
        return cohort_of(client, mask)
