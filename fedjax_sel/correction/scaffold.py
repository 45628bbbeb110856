"""SCAFFOLD: control variates against client drift."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.arrays import add_weighted, wide_zeros
from fedjax_sel.protocols import Correction, LocalTrainer
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Variables

__all__ = ["Scaffold"]


class ScaffoldState(NamedTuple):
    """What `Scaffold` carries from round to round.

    Attributes:
      client: `c_i` of every client, with a leading `N`; in a client's own state, its `c_i`.
      server: `c`.
    """

    client: Variables
    server: Variables


class Scaffold(Correction):
    """Steps of `∇F_i(y) - c_i + c`; then `c_i ← c_i - c + (w_t - y) / (K η)` and `c ← c + Σ_S Δc_i / N` (option II).

    `K` is the client's number of steps and `η` its learning rate in the round; if the rate changes within the round,
    `K η` is its sum over the steps. All variates start at 0. Clients receive and return as many numbers again as the
    model has, without batch statistics; in the simulation, the server keeps `N` such models.

    The source's local steps are plain SGD. If the trainer has momentum, the corrected gradient enters the momentum, and
    `K η` becomes the sum of the weights of the gradients in the update (`Plan.step_size_sum`), so that `c_i` is still a
    mean of the client's gradients. A trainer whose update is not a weighted sum of gradients is refused.

    The sum over the cohort is divided by the number of all clients, as in the source; dividing by the cohort size
    instead is a known mistake of other implementations. The server's step size is the aggregator's (1 with `mean`).

    If all clients take part in every round, Flower's `niid_bench` is `Scaffold(applied="after_momentum",
    weighting="size")` (its variates start at the model, which cancels only then): its steps are those of SGD with
    momentum on the uncorrected gradients, plus `η (c_i - c)`, and `K η` is the sum of the learning rates. Its variates
    are the default's times `Σ_k a_k / (K η)`, where `a_k` is the weight of the `k`-th gradient in the update, so the
    corrections of a round have the same sum; in the default, momentum merely spreads them over the later steps.

    Attributes:
      applied: where the correction enters a step. None: in the gradient, and so in the momentum; `"after_momentum"`:
        after the momentum.
      weighting: of the variates' changes on the server. None: equal, as in the source; `"size"`: by the examples that
        the members trained on, scaled to the same sum of weights.

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
        """Raises `ValueError` if the trainer's update is not a weighted sum of gradients, or it cannot do `applied`."""
        if not trainer.linear:
            raise ValueError(
                f"scaffold needs local training whose update is a weighted sum of gradients, such as sgd (momentum "
                f"included); {trainer!r} is adaptive, or does not say that its update is one (property linear)"
            )
        if self.applied and not trainer.takes_offset:
            raise ValueError(
                f"scaffold: applied is {self.applied!r}, but {trainer!r} adds nothing after its momentum; "
                "leave it out, or use sgd"
            )

    def init(self, variables: Variables, num_clients: int) -> ScaffoldState:
        """Returns variates of 0, of at least 32 bits, since they are sums over rounds."""
        return ScaffoldState(wide_zeros(variables, num_clients), wide_zeros(variables))

    def client_state(self, state: ScaffoldState, client: Int[Array, ""]) -> ScaffoldState:
        """Returns the client's variate and the server's."""
        return ScaffoldState(jax.tree.map(lambda leaf: leaf[client], state.client), state.server)

    def correct(
        self, client_state: ScaffoldState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Returns the gradient minus the client's variate plus the server's; the plain gradient if `applied` is set."""
        if self.applied:
            return gradient
        # the local step of Alg. 1: g_i(y_i) - c_i + c
        return jax.tree.map(
            lambda g, own, c: (g - own + c).astype(g.dtype),
            gradient,
            client_state.client,
            client_state.server,
        )

    def offset(self, client_state: ScaffoldState) -> Variables | None:
        """Returns the server's variate minus the client's if they are applied after the momentum; else None."""
        return jax.tree.map(jnp.subtract, client_state.server, client_state.client) if self.applied else None

    def upload(self, client_state: ScaffoldState, delta: Variables, step_size_sum: Float[Array, ""]) -> Variables:
        """Returns `Δc_i = -c - Δ_i / (K η)`; 0 for a client that took no step."""
        moved = step_size_sum > 0
        divisor = jnp.where(moved, step_size_sum, 1.0)
        # Alg. 1, option (ii): c_i⁺ - c_i, with y_i - x = Δ_i
        return jax.tree.map(
            lambda d, c: jnp.where(moved, -c - d / divisor, 0.0).astype(c.dtype), delta, client_state.server
        )

    def merge(self, state: ScaffoldState, cohort: Cohort, uploads: Variables) -> ScaffoldState:
        """Returns the variates after the round, with those of the returned members and the server updated."""
        num_clients = jax.tree.leaves(state.client)[0].shape[0]
        weight = self.server_weights(cohort)

        def add_up(leaf):
            return add_weighted(weight.astype(leaf.dtype), leaf)

        # Alg. 1: c_i ← c_i⁺ on the clients, c ← c + Σ_S Δc_i / N on the server
        return ScaffoldState(
            client=jax.tree.map(lambda own, up: own.at[cohort.returned].add(up, mode="drop"), state.client, uploads),
            server=jax.tree.map(lambda c, up: c + add_up(up) / num_clients, state.server, uploads),
        )

    def server_weights(self, cohort: Cohort) -> Float[Array, "m"]:
        """Returns the weight of each member's change; they sum to `|S|`, with 0 for members that did not return."""
        returned = cohort.mask.astype(jnp.float32)
        if self.weighting is None:
            return returned
        if cohort.num_examples is None:
            raise ValueError(
                "scaffold: weighting is 'size', but the cohort does not say on how many examples it trained"
            )
        size = returned * cohort.num_examples
        return returned.sum() * size / jnp.maximum(size.sum(), 1)
