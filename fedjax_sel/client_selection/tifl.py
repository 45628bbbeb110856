"""TiFL: cohorts from one speed tier at a time, with tiers of low accuracy more often."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import draw_categorical, uniform_m
from fedjax_sel.client_selection._system import check_devices
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["TiFL"]


class TiFLState(NamedTuple):
    """What `TiFL` carries from round to round.

    Attributes:
      tier: of each client, 0 the fastest.
      credits: rounds in which each tier may still be drawn.
      chance: of each tier.
      accuracy: of the global model on each tier's examples, when it was last measured.
      current: tier drawn last.
    """

    tier: Int[Array, "N"]
    credits: Float[Array, "tiers"]
    chance: Float[Array, "tiers"]
    accuracy: Float[Array, "tiers"]
    current: Int[Array, ""]


class TiFL(ClientSelector):
    """Draws one of `tiers` groups of clients of similar speed, and `m` of its clients: none waits for a slower tier.

    Every `interval` rounds the clients report the accuracy of the global model on their examples (on their hold-out
    examples if `Experiment.signal_split` says so). A tier's accuracy is its clients' mean, weighted by their training
    examples. If that of the tier drawn last has not risen since the report before, the probabilities are reset: with
    tiers ranked by accuracy, 0 the lowest, rank `r` of `n` gets `(n - r) / (n (n + 1) / 2)`, which is 5, 4, 3, 2, 1
    fifteenths for five; tiers of equal accuracy share theirs. A tier without credits or without available clients is
    not drawn; if no tier with available clients has credits left, credits do not count.

    The source leaves open how probabilities follow from accuracies and how many credits there are; the ranks are those
    of its usual implementations, the credits are ours. Tiers are made once, from expected times, which cost nothing
    here (the source measures them in runs before the first round).

    Attributes:
      credits: rounds in which each tier can be drawn, as a multiple of an equal share of the rounds; rounded up.
      tiers: number of tiers; their sizes differ by at most one client.
      interval: rounds between two reports.

    Source: Chai et al., "TiFL: A Tier-based Federated Learning System", 2020, https://arxiv.org/abs/2001.09249,
    its adaptive tier selection.

    >>> TiFL(tiers=3).signals().before
    {'correct': Correct()}
    """

    credits: Scalar = param(default=2.0, above=0)
    tiers: int = static(default=5, low=1)
    interval: int = static(default=10, low=1)

    uses_rounds: ClassVar[bool] = True  # the tiers' credits are a share of all rounds

    def signals(self) -> Signals:
        """Returns the accuracies of the global model on the clients' examples."""
        return Signals(before=[signals.Correct()])

    def asks(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether the clients report: every `interval` rounds, from the first."""
        return round % self.interval == 0

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> TiFLState:
        """Returns tiers by expected seconds of a turn.

        Raises:
          ValueError: the clients have no devices, or a tier would have fewer than `m` of them.
        """
        check_devices("tifl", ctx)
        assert ctx.timing is not None
        most = ctx.num_clients // ctx.m
        if self.tiers > most:
            raise ValueError(
                f"tifl: tiers is {self.tiers}; a cohort of m = {ctx.m} comes from one tier, so N = {ctx.num_clients} "
                f"clients make 1 to {most} tiers"
            )
        rank = np.argsort(np.argsort(np.asarray(ctx.timing.total), kind="stable"), kind="stable")
        each = jnp.ones(self.tiers)
        return TiFLState(
            tier=jnp.asarray(rank * self.tiers // ctx.num_clients, jnp.int32),
            credits=each * jnp.ceil(self.credits * ctx.rounds / self.tiers - 1e-4),
            chance=each / self.tiers,
            accuracy=jnp.zeros(self.tiers),
            current=jnp.zeros((), jnp.int32),
        )

    def select(self, key: PRNGKey, state: TiFLState, ctx: Context, *, correct: Float[Array, "N"]) -> Cohort:
        """Returns clients of the tier that is drawn."""
        key_tier, key_client = jax.random.split(key)
        state = self.update_chances(state, ctx, correct)
        reachable = jnp.zeros(self.tiers, bool).at[state.tier].max(ctx.available)
        paid = reachable & (state.credits >= 1)  # only tiers with credits
        allowed = jnp.where(paid.any(), paid, reachable)
        tier = draw_categorical(key_tier, jnp.where(allowed, jnp.log(state.chance), -jnp.inf))
        return uniform_m(key_client, ctx.available & (state.tier == tier), ctx.m)

    def observe(
        self, key: PRNGKey, state: TiFLState, ctx: Context, cohort: Cohort, *, correct: Float[Array, "N"]
    ) -> TiFLState:
        """Returns the state in which the drawn tier has paid a credit, whether or not its clients returned."""
        state = self.update_chances(state, ctx, correct)
        someone, tier = cohort.client[0] >= 0, state.tier[cohort.client[0]]
        return state._replace(
            credits=state.credits.at[tier].add(jnp.where(someone & (state.credits[tier] >= 1), -1.0, 0.0)),
            current=jnp.where(someone, tier, state.current),
        )

    def update_chances(self, state: TiFLState, ctx: Context, correct: Float[Array, "N"]) -> TiFLState:
        """Returns the state after a report, if there is one."""
        weight = jnp.where(ctx.available, ctx.num_examples, 0).astype(jnp.float32)
        examples = jnp.zeros(self.tiers).at[state.tier].add(weight)
        right = jnp.zeros(self.tiers).at[state.tier].add(jnp.where(ctx.available, weight * correct, 0.0))
        accuracy = jnp.where(examples > 0, right / jnp.maximum(examples, 1), state.accuracy)
        stuck = (examples[state.current] > 0) & (accuracy[state.current] <= state.accuracy[state.current])
        mine, other = accuracy[:, None], accuracy[None]
        rank = (mine > other).sum(1) + ((mine == other).sum(1) - 1) / 2
        chance = (self.tiers - rank) / (self.tiers * (self.tiers + 1) / 2)
        asked = self.asks(ctx.round)
        return state._replace(
            chance=jnp.where(asked & (ctx.round > 0) & stuck, chance, state.chance),
            accuracy=jnp.where(asked, accuracy, state.accuracy),
        )
