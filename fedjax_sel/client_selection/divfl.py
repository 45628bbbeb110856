"""DivFL: a few clients whose gradients stand for everybody's."""

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
from fedjax_sel.signals.sketch import count_numbers
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["DivFL"]


class DivFLState(NamedTuple):
    """What `DivFL` carries from round to round.

    Attributes:
      gradient: of each client when it last trained, or in round 0.
      distance: between them.
      silent: who did not return when it was selected last, and has no other turn yet.
    """

    gradient: Float[Array, "N k"]
    distance: Float[Array, "N N"]
    silent: Bool[Array, "N"]


class DivFL(ClientSelector):
    """The `m` clients for which `Σ_i min_{j ∈ S} ‖g_i - g_j‖` is least, found greedily; `g_i` the clients' gradients.

    With `gradients="stale"` every client sends its gradient at the initial model in round 0, and afterwards each member
    that at the model which it has just trained; in between, its last one counts (a client that could not be reached in
    round 0 has gradient 0 until it trains). With `"all"`, everybody sends its gradient at the global model in every
    round. A gradient takes a forward and a backward pass over all of a client's examples and is as large as the model,
    or `sketch` numbers. Equal choices are settled at random.

    Ours: with `"stale"`, a client that was selected and did not return is left out until a draw of chance `m / N` a
    round gives it another turn, where enough others can be reached; with `"all"`, clients that cannot be reached are
    not stood for.

    A member stands for the clients to which it is the nearest: its weight is their number `γ_j` over `N`, as the text
    derives it (with `weighting: cohort` or `client` of the aggregation). The authors' code has no such weights and
    averages by size: that is `weighting="none"` here and `weighting: size` there.

    Attributes:
      gradients: `"stale"` or `"all"`.
      weighting: `"cluster"`, or `"none"` for weights of 1.
      sketch: numbers that stand for a gradient; None: all `P`, and `N P` numbers of state.
      greedy: `"full"` tries all clients in each of the `m` steps, `"stochastic"` a random tenth, at least `m` (both are
        in the authors' code, which uses the first).

    Source: Balakrishnan et al., "Diverse Client Selection for Federated Learning via Submodular Maximization", 2022,
    https://openreview.net/forum?id=nwKXyFvaUm, section 3; code: https://github.com/melodi-lab/divfl.

    >>> DivFL(sketch=16).signals().before
    {'gradient': Gradient(k=16)}
    """

    gradients: str = static(default="stale", choices=["stale", "all"])
    weighting: str = static(default="cluster", choices=["cluster", "none"])
    sketch: int | None = static(default=None, low=1)
    greedy: str = static(default="full", choices=["full", "stochastic"])

    def signals(self) -> Signals:
        """Returns gradients: everybody's before, in some rounds, and the members' after they have trained."""
        gradient = signals.Gradient(self.sketch)
        return Signals(
            before={"gradient": gradient}, trained={"trained_gradient": gradient} if self.gradients == "stale" else {}
        )

    def asks(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether everybody is asked: in round 0, or always."""
        return (round == 0) | (self.gradients == "all")

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> DivFLState | tuple[()]:
        """Returns gradients of 0."""
        if self.gradients == "all":
            return ()
        n, numbers = ctx.num_clients, count_numbers(host.task.split(host.variables)[0], self.sketch)
        return DivFLState(jnp.zeros((n, numbers)), jnp.zeros((n, n)), jnp.zeros(n, bool))

    def update_state(self, state: DivFLState, ctx: Context, gradient: Float[Array, "N k"]) -> DivFLState:
        """Returns the state with the gradients of round 0, or as it was in the others."""

        def begin():
            known = jnp.where(ctx.available[:, None], gradient, 0.0)
            return DivFLState(known, pairwise_distances(known), state.silent)

        return jax.lax.cond(ctx.round == 0, begin, lambda: state)

    def select(
        self, key: PRNGKey, state: DivFLState | tuple[()], ctx: Context, *, gradient: Float[Array, "N k"]
    ) -> Cohort:
        """Returns the greedy cohort, in the order of its choice."""
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
        """Returns the state with the gradients of those who came back."""
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
