"""Oort: clients that are useful and fast, with exploration."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import draw_members, nth_smallest, round_down, top_m
from fedjax_sel.client_selection._system import check_devices
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["Oort"]


class OortState(NamedTuple):
    """What `Oort` carries from round to round.

    Attributes:
      utility: statistical utility of each client when it last took part.
      last: round in which each client last took part, from 1; 0: never.
      percentile: of the preferred turn.
      sums: of the exploited clients' mean utilities, over the pacer's last window and its present one.
    """

    utility: Float[Array, "N"]
    last: Int[Array, "N"]
    percentile: Float[Array, ""]
    sums: Float[Array, "2"]


class Oort(ClientSelector):
    """Exploits clients whose losses are large, whose examples are many and whose turns are short; explores the others.

    In round `R`, a client last seen in round `last_i` scores

        ((min(U_i, clip) - low) / (max U - low) + sqrt(0.1 ln R / last_i)) · (T / t_i)^penalty where t_i > T,

    with `U_i = n_i sqrt(mean loss²)`, `low = 0.999 min U`, `t_i` the expected seconds of its turn and `T` the preferred
    ones (a percentile over all clients). `⌊(1 - ε) m⌋` slots go to clients drawn in proportion to their scores, among
    those that reach the fraction `cut_off` of the score that would be next. The other slots go to unseen clients, drawn
    in proportion to their examples times the same penalty, among the best of them by this product, `window` times as
    many as wanted. Remaining slots go to any available clients; once all clients were seen, ε is 0. A member that does
    not return counts as seen, with the mean utility of those that do, as in FedScale. The pacer raises
    the percentile when the exploited clients' utility stagnates, and lowers it when it jumps.

    As in the authors' code, the bonus divides by the round of the last participation, not by its age. Unlike in that
    code, utilities are scaled over the clients seen, without the initial values of the others, and a new client counts
    all its examples, not those of one round. There is no blacklist. Expected seconds cost nothing to know.

    Attributes:
      epsilon, decay, smallest: exploring fraction at the start, its factor per round, its smallest value.
      percentile, delta, step: percentile of the preferred turn at the start; its change; rounds in the pacer's window.
      penalty: exponent of the system term.
      clip: quantile at which utilities are clipped.
      cut_off: fraction of the next score that a client must reach to be drawn.
      window: unseen clients drawn from, as a multiple of those wanted.

    Source: Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection", 2021,
    https://arxiv.org/abs/2010.06081, Algorithm 1; code: https://github.com/SymbioticLab/Oort, whose defaults these are.

    >>> Oort(epsilon=0.5).signals().after
    {'training_loss_rms': TrainingLossRMS()}
    """

    ordered: ClassVar[bool] = True

    epsilon: Scalar = param(default=0.9, low=0, high=1)
    decay: Scalar = param(default=0.95, low=0, high=1)
    smallest: Scalar = param(default=0.2, low=0, high=1)
    percentile: Scalar = param(default=10.0, low=0, high=100)
    delta: Scalar = param(default=5.0, low=0, high=100)
    penalty: Scalar = param(default=2.0, low=0)
    clip: Scalar = param(default=0.98, low=0, high=1)
    cut_off: Scalar = param(default=0.7, low=0, high=1)
    window: Scalar = param(default=5.0, low=1)
    step: int = static(default=20, low=1)

    def signals(self) -> Signals:
        """Returns the root mean squares of the members' training losses."""
        return Signals(after=[signals.TrainingLossRMS()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> OortState:
        """Returns the state before any client was seen; raises `ValueError` without devices."""
        check_devices("oort", ctx)
        zero = jnp.zeros(ctx.num_clients)
        return OortState(zero, zero.astype(jnp.int32), jnp.asarray(self.percentile, jnp.float32), jnp.zeros(2))

    def system(self, state: OortState, ctx: Context) -> Float[Array, "N"]:
        """Returns `(T / t_i)^penalty` where `t_i > T`, else 1."""
        assert ctx.timing is not None
        seconds = ctx.timing.total
        place = round_down(jnp.minimum(ctx.num_clients * state.percentile / 100, ctx.num_clients - 1))
        preferred = jnp.where(state.percentile < 100, nth_smallest(seconds, place), jnp.inf)
        return jnp.where(seconds > preferred, (preferred / seconds) ** self.penalty, 1.0)

    def scores(self, state: OortState, ctx: Context) -> Float[Array, "N"]:
        """Returns the scores of the available clients seen before; 0 for others."""
        seen, now = (state.last > 0) & ctx.available, ctx.round + 1.0
        count = seen.sum()
        low = jnp.min(state.utility, where=seen, initial=jnp.inf)
        high = jnp.max(state.utility, where=seen, initial=0.0)
        place = round_down(jnp.minimum(count * self.clip, count - 1))
        top = nth_smallest(jnp.where(seen, state.utility, jnp.inf), place)
        worth = (jnp.minimum(state.utility, top) - 0.999 * low) / jnp.maximum(high - 0.999 * low, 1e-4)
        bonus = jnp.sqrt(0.1 * jnp.log(now) / jnp.maximum(state.last, 1))
        # Statistical utility with the bonus of Alg. 1 for long absence, times the system utility.
        return jnp.where(seen, (worth + bonus) * self.system(state, ctx), 0.0)

    def count_exploited(self, state: OortState, ctx: Context) -> Int[Array, ""]:
        """Returns how many members are exploited, which have the first slots: `m` less those to explore."""
        exploring = jnp.maximum(self.epsilon * self.decay ** (ctx.round + 1.0), self.smallest)
        exploring = jnp.where((state.last == 0).any(), exploring, 0.0)
        return jnp.minimum(round_down(ctx.m * (1 - exploring)), ((state.last > 0) & ctx.available).sum())

    def select(self, key: PRNGKey, state: OortState, ctx: Context) -> Cohort:
        """Returns the exploited clients first, then the explored ones, then any others."""
        key_exploit, key_explore, key_rest = jax.random.split(key, 3)
        seen, unseen = (state.last > 0) & ctx.available, (state.last == 0) & ctx.available
        wanted = self.count_exploited(state, ctx)
        score = self.scores(state, ctx)
        place = jnp.minimum(wanted, jnp.maximum(seen.sum() - 1, 0))
        next_score = -nth_smallest(-jnp.where(seen, score, -jnp.inf), place)
        near = seen & (score >= self.cut_off * next_score)
        exploited = draw_members(key_exploit, safe_log(score), near, wanted, ctx.m)

        reward = ctx.num_examples * self.system(state, ctx)
        places = jnp.minimum(unseen.sum(), ctx.m - wanted)
        last = jnp.clip(round_down(self.window * places) - 1, 0, ctx.num_clients - 1)
        least = -nth_smallest(-jnp.where(unseen, reward, -jnp.inf), last)
        explored = draw_members(key_explore, safe_log(reward), unseen & (reward >= least), places, ctx.m)
        rank = jnp.where(exploited, 2.0, jnp.where(explored, 1.0, 0.0))
        return top_m(key_rest, rank, ctx.available, ctx.m)

    def observe(
        self, key: PRNGKey, state: OortState, ctx: Context, cohort: Cohort, *, training_loss_rms: Float[Array, "m"]
    ) -> OortState:
        """Returns the state, updated for the members and by the pacer."""
        cohort = cohort.replace(mask=cohort.mask & jnp.isfinite(training_loss_rms))
        exploited = cohort.mask & (jnp.arange(ctx.m) < self.count_exploited(state, ctx))
        utility = training_loss_rms * ctx.num_examples[cohort.client]
        mean = jnp.where(exploited, utility, 0).sum() / jnp.maximum(exploited.sum(), 1)
        before, present = state.sums[0], state.sums[1] + mean
        coming, change = ctx.round + 2, jnp.abs(present - before)  # the pacer acts when a round begins
        turn = coming % self.step == 0
        step = jnp.where(change <= 0.1 * before, self.delta, jnp.where(change >= 5 * before, -self.delta, 0.0))
        step = jnp.where(turn & (coming >= 2 * self.step), step, 0.0)
        seen, some = state.last > 0, cohort.mask.any()
        of_members = jnp.where(cohort.mask, utility, 0.0).sum() / jnp.maximum(cohort.mask.sum(), 1)
        of_all = jnp.where(seen, state.utility, 0.0).sum() / jnp.maximum(seen.sum(), 1)
        expected = jnp.where(some, of_members, of_all)
        return OortState(
            utility=state.utility.at[cohort.selected].set(jnp.where(cohort.mask, utility, expected), mode="drop"),
            last=state.last.at[cohort.selected].set(ctx.round + 1, mode="drop"),
            percentile=jnp.clip(state.percentile + step, jnp.minimum(self.delta, state.percentile), 100.0),
            sums=jnp.where(turn, jnp.stack([present, 0.0]), jnp.stack([before, present])),
        )


def safe_log(weight: Float[Array, "N"]) -> Float[Array, "N"]:
    """Returns a logarithm that is finite where the weight is 0, so that such clients are drawn last."""
    return jnp.log(jnp.maximum(weight, 1e-12))
