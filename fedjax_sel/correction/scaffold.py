"""SCAFFOLD: control variates against the drift of clients."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Correction
from fedjax_sel.types import Cohort, Variables

__all__ = ["Scaffold"]


class Variates(NamedTuple):
    """Memory of `Scaffold`.

    Attributes:
      own: `c_i` of every client, with a leading `N`.
      shared: `c`.
    """

    own: Variables
    shared: Variables


class Held(NamedTuple):
    """What one client holds: its `c_i`, and the server's `c`."""

    own: Variables
    shared: Variables


class Scaffold(Correction):
    """Steps of `∇F_i(y) - c_i + c`; then `c_i ← c_i - c + (w_t - y) / (K η)` and `c ← c + Σ_S Δc_i / N` (option II).

    `K` are the client's steps and `η` its learning rate in the round; where that changes within the round, `K η` is the
    sum over the steps. All variates begin at 0. Clients receive and return a second model's worth of numbers; the
    server, in the simulation, keeps `N` models.

    The sum is over the cohort and divided by the number of all clients, as in the source; dividing by the cohort
    instead is a known mistake of other implementations. The step size of the server is the aggregator's (1 with
    `mean`).

    Source: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020,
    https://arxiv.org/abs/1910.06378, Algorithm 1.
    """

    down = 1.0
    up = 1.0

    def init(self, variables: Variables, clients: int) -> Variates:
        """All 0."""
        own = jax.tree.map(lambda leaf: jnp.zeros((clients, *leaf.shape), leaf.dtype), variables)
        return Variates(own, jax.tree.map(jnp.zeros_like, variables))

    def client_state(self, state: Variates, client: Int[Array, ""]) -> Held:
        """The client's, and the server's."""
        return Held(jax.tree.map(lambda leaf: leaf[client], state.own), state.shared)

    def correct(self, client_state: Held, gradient: Variables, variables: Variables, received: Variables) -> Variables:
        """Without the client's drift, with everybody's."""
        return jax.tree.map(lambda g, own, shared: g - own + shared, gradient, client_state.own, client_state.shared)

    def upload(self, client_state: Held, delta: Variables, step_size_sum: Float[Array, ""]) -> Variables:
        """`Δc_i = -c - Δ_i / (K η)`; 0 of a client that took no step."""
        moved = step_size_sum > 0
        step_size_sum = jnp.where(moved, step_size_sum, 1.0)
        return jax.tree.map(
            lambda d, shared: jnp.where(moved, -shared - d / step_size_sum, 0.0), delta, client_state.shared
        )

    def merge(self, state: Variates, cohort: Cohort, uploads: Variables) -> Variates:
        """Those who came back, over all clients."""
        clients = jax.tree.leaves(state.own)[0].shape[0]
        back = jnp.where(cohort.mask, cohort.client, clients)

        def gathered(leaf):
            return jnp.tensordot(cohort.mask.astype(leaf.dtype), leaf, 1)

        return Variates(
            own=jax.tree.map(lambda own, up: own.at[back].add(up, mode="drop"), state.own, uploads),
            shared=jax.tree.map(lambda c, up: c + gathered(up) / clients, state.shared, uploads),
        )
