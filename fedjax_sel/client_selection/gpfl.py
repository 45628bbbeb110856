"""GPFL: clients whose updates point in the direction of the global model's change, with a confidence bound."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import cohort_of, top_m, uniform_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import DROPPED, Cohort, Context, PRNGKey

__all__ = ["GPFL"]

VARIANTS: dict[str, dict[str, Any]] = {
    "code": {
        "warm_up": 20,
        "projection": "tensors",
        "reference": "aggregate",
        "softmax": "cohort",
        "reward": "sign",
        "mean": "selections_and_one",
        "bonus": "rounds",
        "schedule": "hump",
    },
    "paper": {
        "warm_up": 0,
        "projection": "whole",
        "reference": "previous",
        "softmax": "cohort",
        "reward": "exponential",
        "mean": "selections",
        "bonus": "rounds",
        "schedule": "linear",
    },
}
"""Defaults of the parameters, by variant."""

CHOICES: dict[str, tuple[str, ...]] = {
    "projection": ("tensors", "whole", "cosine"),
    "reference": ("aggregate", "previous"),
    "softmax": ("cohort", "everyone"),
    "reward": ("sign", "exponential", "printed", "none", "zero"),
    "mean": ("selections_and_one", "selections", "rounds"),
    "bonus": ("rounds", "selections"),
    "schedule": ("hump", "linear", "constant"),
    "signal": ("validation", "test"),
}


UNCHANGED = 1e-7
"""Changes of accuracy below this are rounding: XLA may fuse the mean with the difference, and round only one of them.

One of n examples changes accuracy by 1 / n.
"""


class GPFLState(NamedTuple):
    """What `GPFL` carries from round to round.

    Attributes:
      projection: of each client's last update; 0: never seen.
      total: sum of each client's rewards.
      rewarded: number of those rewards.
      selected: how often each client was selected.
      accuracy, loss: of the global model after the last round.
    """

    projection: Float[Array, "N"]
    total: Float[Array, "N"]
    rewarded: Int[Array, "N"]
    selected: Int[Array, "N"]
    accuracy: Float[Array, ""]
    loss: Float[Array, ""]


class GPFL(ClientSelector):
    """The `m` clients of highest `u_i = mean reward_i + α_t sqrt(2 ln n / n_i)`, `n_i` the times `i` was selected.

    A client's reward in a round is the softmax `c̃_i` of its update's projection (`signals.Projection`) over the
    cohort, times a factor for whether the round improved the global model. The source's text and code differ in nearly
    every part; `variant` chooses the code's rules or the text's, and each rule can be set individually:

    ============  ===================  ================  =====================================================
    parameter     code                 paper             values
    ============  ===================  ================  =====================================================
    `warm_up`     20                   0                 rounds `W` in which `⌈N/W⌉` (at most `m`) clients never
                                                         seen train; 0: `m` of them per round
    `projection`  tensors              whole             mean over tensors, of all parameters, or `cosine`
    `reference`   aggregate            previous          this round's change of the model, or the one before
    `softmax`     cohort               cohort            over the cohort, or over `everyone`'s last projection
    `reward`      sign                 exponential       factor on `c̃`. `sign`: `±1` as accuracy rose or fell,
                                                         if it did not change `±0.5` as loss fell or rose;
                                                         `exponential`: `2 exp(ΔA)`, if it did not change
                                                         `exp(-ΔF)`; `printed`: the same with `exp(ΔF)`;
                                                         `none`: 1; `zero`: 0, so that the bonus alone decides
                                                         (a control)
    `mean`        selections_and_one   selections        divisor of a client's rewards: their number plus 1,
                                                         their number, or the `rounds` so far
    `bonus`       rounds               rounds            `n`: rounds so far, or all `selections` so far
    `schedule`    hump                 linear            `α_t = alpha` times: `t/100` up to `t = 100`, then
                                                         `200/(t + 100)`; `t/T`; `constant`: 1
    ============  ===================  ================  =====================================================

    With equation (8) as printed, a reward grows with the loss; `exponential` has the sign that the prose implies. The
    text's softmax over all clients is `softmax="everyone"`, its mean over rounds `mean="rounds"`. Its first step
    projects all clients' gradients on a gradient that does not exist yet and is undefined; `variant="paper"` visits
    every client once instead. Momentum belongs to the trainer (`SGD(momentum=...)`): 0 in the code, 0.1 in the text.

    A member that does not return, which the source leaves open, gets a reward of 0 or, if that is less, the mean of the
    others', so that clients that never return do not come first where rewards are negative.

    Attributes:
      alpha: `α` or `ρ`, factor of the bonus.
      variant: `"code"` or `"paper"`.
      warm_up, projection, reference, softmax, reward, mean, bonus, schedule: as in the table; None: the variant's
        value.
      signal: accuracy and loss on the `"validation"` examples, or, as in the code, on the `"test"` examples (a leak).

    Source: Na, Liang and Yiu, "GPFL: A Gradient Projection-Based Client Selection Framework for Efficient Federated
    Learning", 2024, https://arxiv.org/abs/2403.17833, equations (3) to (8); code: github.com/joapolarbear/PBFL.

    >>> GPFL(variant="paper").rule("reward")
    'exponential'
    """

    alpha: Scalar = param(default=1.0, low=0)
    variant: str = static(default="code", choices=VARIANTS)
    warm_up: int | None = static(default=None, low=0)
    projection: str | None = static(default=None, choices=CHOICES["projection"])
    reference: str | None = static(default=None, choices=CHOICES["reference"])
    softmax: str | None = static(default=None, choices=CHOICES["softmax"])
    reward: str | None = static(default=None, choices=CHOICES["reward"])
    mean: str | None = static(default=None, choices=CHOICES["mean"])
    bonus: str | None = static(default=None, choices=CHOICES["bonus"])
    schedule: str | None = static(default=None, choices=CHOICES["schedule"])
    signal: str = static(default="validation", choices=CHOICES["signal"])

    def rule(self, name: str) -> Any:
        """Returns a parameter's value, or the variant's if it is None."""
        given = getattr(self, name)
        return VARIANTS[self.variant][name] if given is None else given

    @property
    def uses_rounds(self) -> bool:
        """Returns whether α grows over the run."""
        return self.rule("schedule") == "linear"

    def signals(self) -> Signals:
        """Returns the projections of the updates, and the new global model's accuracy and loss."""
        how = self.rule("projection")
        projection = signals.Projection(
            norm_over="whole" if how == "whole" else "tensors", cosine=how == "cosine", reference=self.rule("reference")
        )
        return Signals(after=[projection, signals.ValidationAccuracy(self.signal), signals.ValidationLoss(self.signal)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> GPFLState:
        """Returns the state before any client was selected."""
        zero, none = jnp.zeros(ctx.num_clients), jnp.zeros(ctx.num_clients, jnp.int32)
        return GPFLState(zero, zero, none, none, jnp.zeros(()), jnp.zeros(()))

    def bound(self, state: GPFLState, ctx: Context) -> Float[Array, "N"]:
        """Returns `u`, infinite for a client that was never selected (unless α is 0)."""
        t = ctx.round.astype(jnp.float32)
        scheduled = {
            "hump": lambda: jnp.where(t < 100, t / 100, 200 / (t + 100)),
            "linear": lambda: t / ctx.rounds,
            "constant": lambda: jnp.ones(()),
        }
        alpha = self.alpha * scheduled[self.rule("schedule")]()  # Eq. (7), where it is "linear"
        n = {"rounds": t, "selections": state.selected.sum().astype(jnp.float32)}[self.rule("bonus")]
        divisor = {
            "selections_and_one": state.rewarded + 1,
            "selections": jnp.maximum(state.rewarded, 1),
            "rounds": jnp.maximum(ctx.round, 1),
        }[self.rule("mean")]
        seen = state.selected > 0
        width = jnp.sqrt(2 * jnp.log(jnp.maximum(n, 1.0)) / jnp.maximum(state.selected, 1))
        # Eq. (6); the mean as under it with "rounds"
        return state.total / divisor + jnp.where(alpha > 0, jnp.where(seen, alpha * width, jnp.inf), 0.0)

    def select(self, key: PRNGKey, state: GPFLState, ctx: Context) -> Cohort:
        """Returns unseen clients during the warm-up, then the clients of highest bound."""
        key_new, key_tie = jax.random.split(key)
        unseen, rounds = ctx.available & (state.selected == 0), self.rule("warm_up")
        score = self.bound(state, ctx)
        if not rounds:  # unseen clients in all slots; the last round of these visits is filled up with the best others
            return top_m(key_tie, jnp.where(unseen, jnp.inf, score), ctx.available, ctx.m)
        best, new = top_m(key_tie, score, ctx.available, ctx.m), uniform_m(key_new, unseen, ctx.m)
        each = min(-(-ctx.num_clients // rounds), ctx.m)
        new = cohort_of(new.client, new.mask & (jnp.arange(ctx.m) < each))
        return jax.tree.map(lambda a, b: jnp.where(unseen.any() & (ctx.round < rounds), a, b), new, best)

    def observe(
        self,
        key: PRNGKey,
        state: GPFLState,
        ctx: Context,
        cohort: Cohort,
        *,
        projection: Float[Array, "m"],
        validation_accuracy: Float[Array, ""],
        validation_loss: Float[Array, ""],
    ) -> GPFLState:
        """Returns the state with the members' rewards, without those whose projection is not finite.

        The mean that silent members may get is that of the members that returned; if none did, of all clients so far.
        """
        silent, cohort = ~cohort.mask, cohort.replace(mask=cohort.mask & jnp.isfinite(projection))
        last = state.projection.at[cohort.returned].set(projection, mode="drop")
        if self.rule("softmax") == "cohort":
            share = jax.nn.softmax(projection, where=cohort.mask)  # Eq. (5), its sum over the cohort, as in the code
        else:
            share = jax.nn.softmax(last)[cohort.client]  # Eq. (5) as printed, its sum over all clients
        reward = share * self.factor(state, validation_accuracy, validation_loss)  # Eq. (8)
        empty: Bool[Array, ""] = ~cohort.mask.any()
        known = state.rewarded > 0
        so_far = jnp.where(known, state.total / jnp.maximum(state.rewarded, 1), 0.0).sum() / jnp.maximum(known.sum(), 1)
        mean = jnp.where(cohort.mask, reward, 0.0).sum() / jnp.maximum(cohort.mask.sum(), 1)
        reward = jnp.where(cohort.mask, reward, jnp.minimum(jnp.where(empty, so_far, mean), 0.0))
        counts = cohort.mask | (silent & (known.any() | ~empty))  # before any reward, nothing is expected
        rewarded = jnp.where(counts, cohort.selected, DROPPED)
        return GPFLState(
            projection=last,
            total=state.total.at[rewarded].add(reward, mode="drop"),
            rewarded=state.rewarded.at[rewarded].add(1, mode="drop"),
            selected=state.selected.at[cohort.selected].add(1, mode="drop"),
            accuracy=jnp.where(empty, state.accuracy, validation_accuracy),
            loss=jnp.where(empty, state.loss, validation_loss),
        )

    def factor(self, state: GPFLState, accuracy: Float[Array, ""], loss: Float[Array, ""]) -> Float[Array, ""]:
        """Returns the factor on the round's rewards; before the first round with an update, accuracy counts as 0."""
        first = ~state.rewarded.any()
        rise, change = accuracy - state.accuracy, loss - state.loss
        change = jnp.where(first | jnp.isnan(change), 0.0, change)  # two infinite losses do not differ
        same, kind = jnp.abs(rise) < UNCHANGED, self.rule("reward")
        if kind in ("none", "zero"):
            return jnp.asarray(1.0 if kind == "none" else 0.0)
        if kind == "sign":
            by_loss = jnp.where(first, 0.5, -0.5 * jnp.sign(change))  # the loss before the first is infinite
            return jnp.where(same, by_loss, jnp.sign(rise))
        by_loss = jnp.exp(jnp.minimum(change if kind == "printed" else -change, 80.0))  # which is finite
        return jnp.where(same, by_loss, 2 * jnp.exp(rise))  # Eq. (8), with "printed" as it stands
