"""SCAFFOLD: control variates against the drift of clients."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Correction, LocalTrainer
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Variables

__all__ = ["Scaffold"]


class ScaffoldState(NamedTuple):
    """What `Scaffold` carries from round to round.

    Attributes:
      client: `c_i` of every client, with a leading `N`; what one client holds has its own.
      server: `c`.
    """

    client: Variables
    server: Variables


class Scaffold(Correction):
    """Steps of `∇F_i(y) - c_i + c`; then `c_i ← c_i - c + (w_t - y) / (K η)` and `c ← c + Σ_S Δc_i / N` (option II).

    `K` are the client's steps and `η` its learning rate in the round; where that changes within the round, `K η` is the
    sum over the steps. All variates begin at 0. Clients receive and return a second model's worth of numbers; the
    server, in the simulation, keeps `N` models.

    The source's local steps are plain SGD. With the trainer's momentum the corrected gradient enters the momentum, and
    `K η` becomes the sum of the weights of the gradients in the update (`Plan.step_size_sum`), so that `c_i` is still a
    mean of the client's gradients. A trainer whose update is no weighted sum of gradients is refused.

    The sum is over the cohort and divided by the number of all clients, as in the source; dividing by the cohort
    instead is a known mistake of other implementations. The step size of the server is the aggregator's (1 with
    `mean`).

    Flower's `niid_bench` is `Scaffold(applied="after_momentum", weighting="size")`: its steps are those of SGD with
    momentum on the plain gradients, plus `η (c_i - c)`, and `K η` is the sum of the learning rates. Its variates are
    those of the default times `Σ_k a_k / K` (`a_k`: how far the `k`-th gradient enters the update), so that the
    corrections of a round add up to the same; the momentum merely spreads the default's over the later steps.

    Attributes:
      applied: where the correction enters a step: None: the gradient, and with it the momentum; `"after_momentum"`.
      weighting: of the variates' changes on the server: None: all alike, as in the source; `"size"`: by the examples
        that the members trained on, their sum times the cohort's share of all clients.

    Source: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020,
    https://arxiv.org/abs/1910.06378, Algorithm 1.

    >>> import jax.numpy as jnp
    >>> Scaffold().upload(ScaffoldState(jnp.zeros(1), jnp.ones(1)), jnp.array([-6.0]), step_size_sum=jnp.array(2.0))
    Array([2.], dtype=float32)
    """

    applied: str | None = static(default=None, choices=["after_momentum"])
    weighting: str | None = static(default=None, choices=["size"])

    down = 1.0
    up = 1.0

    def check(self, trainer: LocalTrainer) -> None:
        """Raises `ValueError` for a trainer whose update is no weighted sum of its gradients."""
        if not trainer.linear:
            raise ValueError(
                f"scaffold needs local training whose update is a weighted sum of gradients, such as sgd (momentum "
                f"included); {trainer!r} is adaptive"
            )
        if self.applied and not trainer.takes_offset:
            raise ValueError(
                f"scaffold: applied is {self.applied!r}, but {trainer!r} adds nothing after its momentum; "
                "leave it out, or use sgd"
            )

    def init(self, variables: Variables, num_clients: int) -> ScaffoldState:
        """Returns variates that are all 0."""
        client = jax.tree.map(lambda leaf: jnp.zeros((num_clients, *leaf.shape), leaf.dtype), variables)
        return ScaffoldState(client, jax.tree.map(jnp.zeros_like, variables))

    def client_state(self, state: ScaffoldState, client: Int[Array, ""]) -> ScaffoldState:
        """Returns the client's variate and the server's."""
        return ScaffoldState(jax.tree.map(lambda leaf: leaf[client], state.client), state.server)

    def correct(
        self, client_state: ScaffoldState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Returns the gradient less the client's variate, plus the server's; itself where those come after momentum."""
        if self.applied:
            return gradient
        # the local step of Alg. 1: g_i(y_i) - c_i + c
        return jax.tree.map(lambda g, own, c: g - own + c, gradient, client_state.client, client_state.server)

    def offset(self, client_state: ScaffoldState) -> Variables | None:
        """Returns the server's variate less the client's, where they come after the momentum."""
        return jax.tree.map(jnp.subtract, client_state.server, client_state.client) if self.applied else None

    def upload(self, client_state: ScaffoldState, delta: Variables, step_size_sum: Float[Array, ""]) -> Variables:
        """Returns `Δc_i = -c - Δ_i / (K η)`; 0 for a client that took no step."""
        moved = step_size_sum > 0
        divisor = jnp.where(moved, step_size_sum, 1.0)
        # Alg. 1, option (ii): c_i⁺ - c_i, with y_i - x = Δ_i
        return jax.tree.map(lambda d, c: jnp.where(moved, -c - d / divisor, 0.0), delta, client_state.server)

    def merge(self, state: ScaffoldState, cohort: Cohort, uploads: Variables) -> ScaffoldState:
        """Returns the variates after the round: new ones of the members that returned, and of the server."""
        num_clients = jax.tree.leaves(state.client)[0].shape[0]
        weight = self.server_weights(cohort)

        def add_up(leaf):
            return jnp.tensordot(weight.astype(leaf.dtype), leaf, 1)

        # Alg. 1: c_i ← c_i⁺ on the clients, c ← c + Σ_S Δc_i / N on the server
        return ScaffoldState(
            client=jax.tree.map(lambda own, up: own.at[cohort.returned].add(up, mode="drop"), state.client, uploads),
            server=jax.tree.map(lambda c, up: c + add_up(up) / num_clients, state.server, uploads),
        )

    def server_weights(self, cohort: Cohort) -> Float[Array, "m"]:
        """Returns the weight of each member's change in their sum, `|S|` in all; 0 for those that did not return."""
        returned = cohort.mask.astype(jnp.float32)
        if self.weighting is None:
            return returned
        if cohort.num_examples is None:
            raise ValueError(
                "scaffold: weighting is 'size', but the cohort does not say on how many examples it trained"
            )
        size = returned * cohort.num_examples
        return returned.sum() * size / jnp.maximum(size.sum(), 1)
