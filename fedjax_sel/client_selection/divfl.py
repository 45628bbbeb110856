"""DivFL: a few clients whose gradients represent those of all clients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.kernels.facility_location import count_served, locate_facilities, pairwise_distances
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.signals.sketch import sketch_length
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["DivFL"]


class DivFLState(NamedTuple):
    """What `DivFL` carries from round to round.

    Attributes:
      gradient: of each client when it last trained, or in round 0.
      distance: between the gradients.
      silent: clients that did not return when last selected, and have no new turn yet.
    """

    gradient: Float[Array, "N k"]
    distance: Float[Array, "N N"]
    silent: Bool[Array, "N"]


class DivFL(ClientSelector):
    """The `m` clients for which `Σ_i min_{j ∈ S} ‖g_i - g_j‖` is least, found greedily; `g_i` the clients' gradients.

    With `gradients="stale"`, every client sends its gradient at the initial model in round 0. In every round, each
    member sends its gradient at the model that it receives, before it trains (in round 0, the same one again), and a
    client's last gradient counts (0 for a client unavailable in round 0, until it trains). With `"all"`, every client
    sends its gradient at the global model in every round. A gradient takes a forward and a backward pass over all of a
    client's examples and is as large as the model, or `sketch` numbers. Ties are broken at random.

    Two rules are ours. With `"stale"`, a client that was selected but did not return is left out, if enough others are
    available, until a draw with probability `m / N` per round gives it another turn. With `"all"`, the sum excludes
    unavailable clients.

    A member represents the clients to which it is nearest: its weight is their number `γ_j` over `N`, as the text
    derives it (with the aggregation's `weighting: cohort` or `client`). The authors' code has no such weights and
    averages by size: use `weighting="none"` here and the aggregation's `weighting: size`.

    Attributes:
      gradients: `"stale"` or `"all"`.
      weighting: `"cluster"`, or `"none"` for weights of 1.
      sketch: length of the sketch that represents a gradient; None: all `P` numbers, and `N P` numbers of state.
      greedy: `"full"` tries all clients in each of the `m` steps, `"stochastic"` a random tenth, at least `m` (both are
        in the authors' code, which uses the first).

    Source: Balakrishnan et al., "Diverse Client Selection for Federated Learning via Submodular Maximization", 2022,
    https://openreview.net/forum?id=nwKXyFvaUm, section 3; code: https://github.com/melodi-lab/divfl.

    >>> DivFL(sketch=16).signals().before
    {'gradient': Gradient(k=16, before_training=False)}
    """

    gradients: str = static(default="stale", choices=["stale", "all"])
    weighting: str = static(default="cluster", choices=["cluster", "none"])
    sketch: int | None = static(default=None, low=1)
    greedy: str = static(default="full", choices=["full", "stochastic"])

    def signals(self) -> Signals:
        """Returns the gradients at the received model: all clients', in some rounds, and the members'."""
        of_members = {"trained_gradient": signals.Gradient(self.sketch, before_training=True)}
        return Signals(
            before={"gradient": signals.Gradient(self.sketch)}, trained=of_members if self.gradients == "stale" else {}
        )

    def asks(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether all clients are asked: in round 0, or always."""
        return (round == 0) | (self.gradients == "all")

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> DivFLState | tuple[()]:
        """Returns zero gradients; no state with `"all"`."""
        if self.gradients == "all":
            return ()
        n, numbers = ctx.num_clients, sketch_length(host.task.split(host.variables)[0], self.sketch)
        return DivFLState(jnp.zeros((n, numbers)), jnp.zeros((n, n)), jnp.zeros(n, bool))

    def update_state(self, state: DivFLState, ctx: Context, gradient: Float[Array, "N k"]) -> DivFLState:
        """Returns the state with the gradients of round 0; in other rounds, the state as it was."""

        def begin():
            known = jnp.where(ctx.available[:, None], gradient, 0.0)
            return DivFLState(known, pairwise_distances(known), state.silent)

        return jax.lax.cond(ctx.round == 0, begin, lambda: state)

    @property
    def ordered(self) -> bool:
        """Returns whether the weights say how many clients each member stands for; the first ones have the most."""
        return self.weighting == "cluster"

    def select(
        self, key: PRNGKey, state: DivFLState | tuple[()], ctx: Context, *, gradient: Float[Array, "N k"]
    ) -> Cohort:
        """Returns the greedy cohort, in the order chosen."""
        if isinstance(state, DivFLState):
            distance = self.update_state(state, ctx, gradient).distance
            allowed, served = ctx.available & ~state.silent, jnp.ones(ctx.num_clients, bool)
            allowed = jnp.where(allowed.sum() >= ctx.m, allowed, ctx.available)
        else:
            distance, allowed, served = pairwise_distances(gradient), ctx.available, ctx.available
        examined = None if self.greedy == "full" else max(ctx.m, math.ceil(0.1 * ctx.num_clients))
        client, mask = locate_facilities(key, distance, allowed, ctx.m, examined, served)
        cohort = cohort_of(client, mask)
        if self.weighting == "none":
            return cohort
        share = count_served(distance, client, mask, served) / jnp.maximum(served.sum(), 1)
        return cohort.replace(weight=share)  # γ / N

    def observe(
        self, key: PRNGKey, state: DivFLState | tuple[()], ctx: Context, cohort: Cohort, **values: Any
    ) -> DivFLState | tuple[()]:
        """Returns the state with the gradients of the members that returned."""
        if not isinstance(state, DivFLState):
            return state
        state = self.update_state(state, ctx, values["gradient"])
        gradient = state.gradient.at[cohort.returned].set(values["trained_gradient"], mode="drop")

        def measure(i):
            return jnp.linalg.norm(gradient - gradient[i][None], axis=1)

        rows = jax.lax.map(measure, jnp.where(cohort.mask, cohort.client, 0))
        who = cohort.returned
        distance = state.distance.at[who, :].set(rows, mode="drop").at[:, who].set(rows.T, mode="drop")
        # A gradient that never changes is soon far from all others, which makes it a facility in every round.
        again = jax.random.uniform(key, (ctx.num_clients,)) < ctx.m / ctx.num_clients
        silent = (state.silent & ~again).at[cohort.selected].set(~cohort.mask, mode="drop")
        return DivFLState(gradient, distance, silent)
