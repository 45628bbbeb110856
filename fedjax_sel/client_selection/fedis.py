"""FedIS: clients in proportion to the norms of their gradients."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._stale_chances import draw_clients, renew_chances, weigh_draws
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["FedIS"]


class FedIS(ClientSelector):
    """`m` draws with replacement, with probability `p_i ∝ ‖∇F_i(w)‖` and weight `1 / (m N p_i)`.

    With the aggregation's `weighting: cohort`, the sum equals full participation in expectation, with weight `1/N` for
    each client (the weights need not sum to 1; `client` normalises them, which biases the sum).

    With `gradients="stale"`, the practical rule, `p` starts at `1/N`. After a round, the members redistribute their
    joint probability in proportion to their gradients' norms, `p_i ← ‖g_i‖ / Σ_S ‖g‖ · (1 - Σ_{j ∉ S} p_j)`; the other
    clients keep theirs. A member makes one more forward and backward pass over its examples than training alone, and
    sends one number. With `"all"`, all clients do so in every round. A client whose gradient was 0 is not drawn again.

    The authors' code multiplies the norms by the clients' shares of the examples, and in one of its files draws without
    replacement; that rule is not implemented.

    Attributes:
      gradients: `"stale"` or `"all"`.

    Source: Wang et al., "DELTA: Diverse Client Sampling for Fasting Federated Learning", 2023,
    https://arxiv.org/abs/2205.13925, the baseline FedIS; code: https://github.com/L3030/DELTA_FL.

    >>> FedIS().signals().before
    {'gradient_norm': GradientNorm()}
    """

    replacement: ClassVar[bool] = True

    gradients: str = static(default="stale", choices=["stale", "all"])

    def signals(self) -> Signals:
        """Returns the norms of gradients at the global model."""
        return Signals(before=[signals.GradientNorm()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns equal probabilities."""
        return jnp.full(ctx.num_clients, 1 / ctx.num_clients)

    def candidates(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Int[Array, "m"] | None:
        """Returns the draws, so that only members are asked; None if all clients are asked."""
        return draw_clients(key, state, ctx) if self.gradients == "stale" else None

    def select(
        self, key: PRNGKey, state: Float[Array, "N"], ctx: Context, *, gradient_norm: Float[Array, "d"]
    ) -> Cohort:
        """Returns the clients that were asked, or draws by all clients' gradients."""
        if ctx.candidates is not None:
            return weigh_draws(ctx.candidates, state, ctx)
        return weigh_draws(draw_clients(key, gradient_norm, ctx), gradient_norm, ctx)

    def observe(
        self, key: PRNGKey, state: Float[Array, "N"], ctx: Context, cohort: Cohort, *, gradient_norm: Float[Array, "d"]
    ) -> Float[Array, "N"]:
        """Returns the probabilities, updated for the members that returned."""
        if ctx.candidates is None:
            return state
        return renew_chances(state, cohort.client, cohort.mask, gradient_norm)
