"""FedBalancer: examples above a loss that the server raises as training progresses, and a deadline that it lowers."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.arrays import floor_share
from fedjax_sel.data_selection._ops import places
from fedjax_sel.protocols import DataSelector, ExampleSignal, Host, Prepared
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState, Turn

__all__ = ["FedBalancer"]

ROUNDING = 2.0**-20
"""A difference of times by a smaller fraction is rounding."""


class BalancerState(NamedTuple):
    """What the server carries from round to round.

    Attributes:
      threshold: loss from which an example counts as hard; 0 until the ratio first rises.
      loss_ratio, deadline_ratio: positions of the threshold and the deadline between their bounds.
      window_loss: sum of the cohorts' mean losses in this window, each divided by its round's deadline.
      previous_loss: the same sum for the previous window; NaN: there was none.
      rounds: rounds of this window so far.
    """

    threshold: Float[Array, ""]
    loss_ratio: Float[Array, ""]
    deadline_ratio: Float[Array, ""]
    window_loss: Float[Array, ""]
    previous_loss: Float[Array, ""]
    rounds: Int[Array, ""]


class LossReport(NamedTuple):
    """What a member reports about its examples' losses: the smallest, the high quantile, their sum and their number."""

    low: Float[Array, "*m"]
    high: Float[Array, "*m"]
    total: Float[Array, "*m"]
    count: Float[Array, "*m"]


class FedBalancer(DataSelector):
    """Hard examples, those with a loss of at least `lt`, and others if the deadline leaves time for them.

    A client trains on `L` examples: as many as it can before the deadline, or the number `|O|` of its hard examples if
    it cannot train on all of these or if there are no devices, but at least one. If no example is hard, the one of
    highest loss counts as hard. `p L` of the `L` examples are hard and the others easy, drawn at random, unless there
    are too few of one kind.

    `lt = LL + (LH - LL) ltr`, where `LL` is the smallest loss in the last cohort and `LH` the mean of its members'
    largest losses; until `ltr` first rises, `lt` is 0, as in the authors' code. The deadline is `lo + (hi - lo) ddlr`,
    where `lo` and `hi` are the times `t` that maximise the number of members done by `t`, divided by `t`, for one epoch
    and for all epochs on all their examples. After every `window` rounds, the average of the cohorts' mean losses (over
    all their examples together), each divided by its round's deadline if there is one, is compared with that of the
    previous window: if it is lower, `ltr` rises and `ddlr` falls by a step, otherwise the reverse, within [0, 1]. At
    first, `ltr` is 0 and `ddlr` 1.

    One member with far fewer examples than the others may maximise that quotient alone: one done in 0.4 seconds makes
    2.5 per second, ten done in 8 seconds only 1.25. Where every cohort has such a member, the others are always late,
    whatever `ltr` and `ddlr`; `deadline="fixed"` keeps the experiment's deadline, which `"chosen"` replaces.

    The authors' code draws the fraction `p` from the easy examples (`prefer="easy"`) and uses the 80th percentile of a
    client's losses as its largest (`high=0.8`). It looks for `lo` and `hi` among whole seconds, by the numbers of
    examples that clients have recently trained on, takes `LL` and `LH` over all rounds so far, adds noise to the
    reports, and leaves a ratio unchanged if a step would take it out of [0, 1]. There, a client runs a forward pass
    over all its examples only when it is first selected; here, every time. Until more than half of all clients, or more
    than 200, have told how long an epoch takes, the deadline there is the mean time of all their epochs.

    Attributes:
      prefer: kind of which the fraction `p` is drawn, `"hard"` or `"easy"`.
      part: `p`, in [0.5, 1].
      high: quantile of a client's losses that counts as its largest, in [0, 1].
      window: rounds per window, `w`.
      loss_step, deadline_step: steps of the ratios, in [0, 1].
      deadline: `"chosen"`, or `"fixed"` for the experiment's.

    Source: Shin et al., "FedBalancer: Data and Pace Control for Efficient Federated Learning on Heterogeneous Clients",
    2022, https://arxiv.org/abs/2201.01601, Algorithms 1 to 4; code: https://github.com/jaemin-shin/FedBalancer.

    >>> FedBalancer(part=0.75).signals()
    {'loss': Loss()}
    """

    uses_turn = True

    prefer: str = static(default="hard", choices=["hard", "easy"])
    part: Scalar = param(default=1.0, low=0.5, high=1)
    high: Scalar = param(default=1.0, low=0, high=1)
    window: int = static(default=20, low=1)
    loss_step: Scalar = param(default=0.05, low=0, high=1)
    deadline_step: Scalar = param(default=0.05, low=0, high=1)
    deadline: str = static(default="chosen", choices=["chosen", "fixed"])

    def signals(self) -> dict[str, ExampleSignal]:
        """Returns the loss of each example."""
        return {"loss": signals.Loss()}

    def count_down(self, classes: int) -> float:
        """Returns 2, the threshold and the deadline; 1 if the deadline is fixed."""
        return 1.0 if self.deadline == "fixed" else 2.0

    def count_up(self, classes: int) -> float:
        """Returns 4: the numbers of a `LossReport`."""
        return 4.0

    def prepare(self, key: PRNGKey, ctx: Context, host: Host) -> Prepared:
        """Returns the initial state: the lowest threshold and the latest deadline."""
        zero = jnp.zeros(())
        return Prepared(server=BalancerState(zero, zero, jnp.ones(()), zero, jnp.full((), jnp.nan), jnp.int32(0)))

    def choose_deadline(
        self, server: BalancerState, ctx: Context, cohort: Cohort, seconds: Scalar
    ) -> Float[Array, ""] | Scalar:
        """Returns the deadline, which the ratio places between the times for one epoch and for all."""
        if self.deadline == "fixed" or ctx.timing is None or ctx.epoch is None:
            return seconds
        once, turn = (jax.tree.map(lambda leaf: leaf[cohort.client], one) for one in (ctx.epoch, ctx.timing))
        low, high = find_peak(once.total, cohort.mask), find_peak(turn.total, cohort.mask)  # Alg. 4
        ratio = server.deadline_ratio
        chosen = low * (1 - ratio) + high * ratio
        # The member whose own time this is must not be late because its time, computed again, is rounded otherwise.
        return jnp.where(cohort.mask.any(), chosen * (1 + ROUNDING), seconds)

    def select(
        self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"], *, loss: Float[Array, "L"], turn: Turn
    ) -> Bool[Array, "L"]:
        """Returns 1 for the hard and the easy examples that are drawn (Alg. 1)."""
        hard = valid & (loss >= turn.server.threshold)
        highest = jnp.argmax(jnp.where(valid & ~jnp.isnan(loss), loss, -jnp.inf))
        hard |= ~hard.any() & valid & (jnp.arange(len(loss)) == highest)
        easy = valid & ~hard
        count = hard.sum()
        if turn.affordable is not None:
            count = jnp.where(turn.affordable >= count, turn.affordable, count)
        count = jnp.clip(count, 1, valid.sum())
        first, second = (hard, easy) if self.prefer == "hard" else (easy, hard)
        of_first = jnp.minimum(floor_share(self.part, count), first.sum())
        of_first = jnp.maximum(of_first, count - second.sum())
        noise = jax.random.uniform(key, valid.shape, jnp.float32)
        return (first & (places(first, noise) < of_first)) | (second & (places(second, noise) < count - of_first))

    def report(
        self,
        state: StrategyState,
        valid: Bool[Array, "L"],
        weight: Bool[Array, "L"],
        *,
        loss: Float[Array, "L"],
        turn: Turn,
    ) -> LossReport:
        """Returns what the server needs for the next threshold; losses that are not finite do not count."""
        valid = valid & jnp.isfinite(loss)
        rising = jnp.sort(jnp.where(valid, loss, jnp.inf))
        n = valid.sum()
        place = self.high * jnp.maximum(n - 1, 0)
        below = jnp.floor(place).astype(jnp.int32)
        ends = rising[below], rising[jnp.minimum(below + 1, jnp.maximum(n - 1, 0))]
        high = ends[0] + (ends[1] - ends[0]) * (place - below)
        return LossReport(rising[0], high, jnp.where(valid, loss, 0.0).sum(), n.astype(jnp.float32))

    def merge(
        self, key: PRNGKey, server: BalancerState, ctx: Context, cohort: Cohort, reports: LossReport
    ) -> BalancerState:
        """Returns the ratios and the next round's threshold; unchanged if nobody returned."""
        told = cohort.mask & (reports.count > 0)
        total = jnp.where(told, reports.total, 0.0).sum() / jnp.maximum(jnp.where(told, reports.count, 0.0).sum(), 1)
        selected = cohort.replace(mask=cohort.client >= 0)  # all members for whom the deadline was chosen
        moved = self.move_ratios(server, total / self.choose_deadline(server, ctx, selected, 1.0))
        low = jnp.where(told, reports.low, jnp.inf).min()
        high = jnp.where(told, reports.high, 0.0).sum() / jnp.maximum(told.sum(), 1)
        threshold = low + (high - low) * moved.loss_ratio  # Alg. 2
        begins = (server.threshold == 0) & (moved.loss_ratio == 0)
        moved = moved._replace(threshold=jnp.where(begins, 0.0, threshold))
        return jax.tree.map(lambda new, old: jnp.where(told.any(), new, old), moved, server)

    def move_ratios(self, server: BalancerState, loss: Float[Array, ""]) -> BalancerState:
        """Returns the ratios after a round; `loss` is its mean loss divided by the deadline (Alg. 3)."""
        total, rounds = server.window_loss + loss, server.rounds + 1
        ends = rounds >= self.window
        compared = ends & ~jnp.isnan(server.previous_loss)
        sign = jnp.where(compared, jnp.where(total < server.previous_loss, 1.0, -1.0), 0.0)
        return BalancerState(
            server.threshold,
            jnp.clip(server.loss_ratio + sign * self.loss_step, 0.0, 1.0),
            jnp.clip(server.deadline_ratio - sign * self.deadline_step, 0.0, 1.0),
            jnp.where(ends, 0.0, total),
            jnp.where(ends, total, server.previous_loss),
            jnp.where(ends, 0, rounds),
        )


def find_peak(seconds: Float[Array, "m"], mask: Bool[Array, "m"]) -> Float[Array, ""]:
    """Returns the time `t` that maximises the number of members done by `t`, divided by `t`.

    >>> find_peak(jnp.array([10.0, 2.0, 3.0, 1.0]), jnp.array([True, True, True, False]))
    Array(3., dtype=float32)
    """
    rising = jnp.sort(jnp.where(mask, seconds, jnp.inf))
    return rising[jnp.argmax((jnp.arange(len(rising)) + 1) / rising)]
