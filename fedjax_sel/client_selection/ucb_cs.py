"""UCB-CS: clients of high reported loss, with a bonus for clients not heard from lately."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import DROPPED, Cohort, Context, PRNGKey

__all__ = ["UCBCS"]


LEAST = 1e-30
"""The smallest number of reports: one who reported long ago is not one who never did, and its index is finite."""


class UCBCSState(NamedTuple):
    """What `UCBCS` carries from round to round; the sums are discounted.

    Attributes:
      losses: `L_i`, sum of the losses that each client reported.
      reports: `N_i`, the number of these losses.
      rounds: `T`, the number of rounds so far.
      deviation: `σ`, largest standard deviation of a client's losses in the last round with an update.
      level: mean loss of the members that returned in that round.
    """

    losses: Float[Array, "N"]
    reports: Float[Array, "N"]
    rounds: Float[Array, ""]
    deviation: Float[Array, ""]
    level: Float[Array, ""]


class UCBCS(ClientSelector):
    """The `m` clients of largest `A_i = p_i (L_i / N_i + sqrt(2 σ² ln T / N_i))`, ties at random.

    `L_i` is the sum of client `i`'s reported losses, `N_i` their number and `T` the number of rounds, all discounted by
    γ per round; `p_i = n_i / n`. A client that was never selected comes first. One that was selected but returned
    nothing counts as having reported the loss at which `p_i · loss` equals the mean of this product over the members
    that returned (if none did, over those of the last round in which some did); otherwise clients that cannot return
    would come to fill every cohort, as the losses of the others fall. `γ = 1` without
    the factor `p_i` is UCB1 on losses. No client is asked before training; each member sends two numbers with its
    update.

    A reported loss is the mean over the examples of all local steps, and `σ` the largest standard deviation of the same
    losses, while usual implementations take those of minibatches.

    Attributes:
      gamma: γ, the discount, in (0, 1].

    Source: Cho et al., "Bandit-based Communication-Efficient Client Selection Strategies for Federated Learning", 2020,
    https://arxiv.org/abs/2012.08009.

    >>> list(UCBCS().signals().after)
    ['training_loss', 'training_loss_rms']
    """

    gamma: Scalar = param(default=0.7, above=0, high=1)

    def signals(self) -> Signals:
        """Returns mean and root mean square of the members' training losses."""
        return Signals(after=[signals.TrainingLoss(), signals.TrainingLossRMS()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> UCBCSState:
        """Returns the state before any client reported."""
        zero = jnp.zeros(ctx.num_clients)
        return UCBCSState(zero, zero, jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def indices(self, state: UCBCSState, ctx: Context) -> Float[Array, "N"]:
        """Returns `A_i`, infinite for clients that were never selected."""
        seen = state.reports > 0
        reports = jnp.where(seen, state.reports, 1.0)
        bonus = state.deviation * jnp.sqrt(2 * jnp.log(jnp.maximum(state.rounds, 1.0)) / reports)
        return jnp.where(seen, self.shares(ctx) * (state.losses / reports + bonus), jnp.inf)

    def shares(self, ctx: Context) -> Float[Array, "N"]:
        """Returns `p_i`."""
        return ctx.num_examples / ctx.num_examples.sum()

    def select(self, key: PRNGKey, state: UCBCSState, ctx: Context) -> Cohort:
        """Returns the clients of largest index."""
        return top_m(key, self.indices(state, ctx), ctx.available, ctx.m)

    def observe(
        self,
        key: PRNGKey,
        state: UCBCSState,
        ctx: Context,
        cohort: Cohort,
        *,
        training_loss: Float[Array, "m"],
        training_loss_rms: Float[Array, "m"],
    ) -> UCBCSState:
        """Returns the discounted sums with the losses of the members that returned, and a mean for the others."""
        cohort = cohort.replace(mask=cohort.mask & jnp.isfinite(training_loss_rms))
        seen = state.reports > 0
        mean = state.losses / jnp.where(seen, state.reports, 1.0)
        some: Bool[Array, ""] = cohort.mask.any()
        share = self.shares(ctx)[cohort.client]
        level = jnp.where(cohort.mask, share * training_loss, 0.0).sum() / jnp.maximum(cohort.mask.sum(), 1)
        level = jnp.where(some, level, state.level)
        expected = jnp.where(share > 0, level / jnp.where(share > 0, share, 1.0), 0.0)
        loss = jnp.where(cohort.mask, training_loss, expected)
        reported = jnp.where(some | seen.any(), cohort.selected, DROPPED)  # before any report, nothing is expected
        variance = jnp.maximum(training_loss_rms**2 - training_loss**2, 0.0)
        largest = jnp.sqrt(jnp.max(jnp.where(cohort.mask, variance, 0.0)))
        faded = seen & (self.gamma * state.reports < LEAST)
        losses = jnp.where(faded, mean * LEAST, self.gamma * state.losses)
        reports = jnp.where(faded, LEAST, self.gamma * state.reports)
        return UCBCSState(
            losses=losses.at[reported].add(loss, mode="drop"),
            reports=reports.at[reported].add(1.0, mode="drop"),
            rounds=self.gamma * state.rounds + 1,
            deviation=jnp.where(some, largest, state.deviation),
            level=level,
        )
