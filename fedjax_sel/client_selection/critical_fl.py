"""CriticalFL: any selector, with larger cohorts in critical learning periods."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.arrays import choose
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.protocols import ClientSelector, Host, Signals, Upfront, overrides
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey, StrategyState

__all__ = ["CriticalFL"]

SMALLEST = 1e-7
"""Lower bound on the mean of norms that growth is relative to."""


class CriticalFLState(NamedTuple):
    """What `CriticalFL` carries from round to round.

    Attributes:
      inner: the wrapped selector's state.
      size: members of the next cohort.
      norms: mean squared gradient norms at the last checks, the newest last.
      checks: number of checks so far.
      reached: whether the largest size was reached.
    """

    inner: StrategyState
    size: Int[Array, ""]
    norms: Float[Array, "w"]
    checks: Int[Array, ""]
    reached: Bool[Array, ""]


class CriticalFL(ClientSelector):
    """Keeps the first members of another selector's cohort: twice as many while gradients grow, else half as many.

    Every `interval` rounds, from the first, the federated gradient norm is appended to a window: the mean of
    `‖∇F_i(w_i)‖²` over the members, each on its new model and all its examples. The period is critical if the mean over
    the window has grown by more than the fraction `threshold` since the check before, or in the first `warmup` checks.
    As in the authors' code, checks that have not been made count as 0, so that norms which do not collapse make the
    first `window` checks critical anyway. In a critical period the size doubles, up to the slots of the cohort, until
    it has reached them once; otherwise half of the members are dropped, down to `smallest`. Give the run as many slots
    as the largest cohort (`cohort_size`; in the source, three quarters of all clients).

    The wrapped selector selects for all `m` slots, and only the first are kept: the best of a selector that puts them
    first, as `power_of_choice` does. If the slots are `ordered` otherwise, as by cluster in `clustered_sampling`, or
    the exploited members before the explored ones in `active_fl`, the part that is kept is drawn.

    A member makes one more forward and backward pass over all its examples and sends one number, in every round, also
    between checks. The authors' code averages the squared norms of the minibatches that a client trains on, clipped at
    10, times the learning rate, without another pass, and in every round, too; in critical periods it also uploads only
    the largest fifth of an update, which is not a matter of selection.

    A wrapped `e3cs` estimates with the chances of being among all `m`, so in cohorts of `k` it learns at `k / m` of its
    rate.

    Attributes:
      selector: the wrapped selector; one that probes is rejected.
      threshold: relative growth above which a period is critical.
      smallest: initial and smallest number of members; None: a sixth of the slots, rounded down, and at least 1.
      window: number of checks over which norms are averaged.
      interval: rounds between two checks.
      warmup: number of first checks, which all count as critical.

    Source: Yan et al., "CriticalFL: A Critical Learning Periods Augmented Client Selection Framework for Efficient
    Federated Learning", 2023, https://doi.org/10.1145/3580305.3599293; the numbers are those of the
    authors' code, https://github.com/GYan58/KDD-2023-CriticalFL.

    >>> CriticalFL(smallest=4).signals().trained
    {'federated_gradient_norm': GradientNorm()}
    """

    selector: ClientSelector = Uniform()
    threshold: Scalar = param(default=0.01, low=0)
    smallest: int | None = static(default=None, low=1)
    window: int = static(default=10, low=1)
    interval: int = static(default=2, low=1)
    warmup: int = static(default=5, low=0)

    def __check_init__(self) -> None:
        """Raises `ValueError` for a selector that it cannot wrap."""
        if not isinstance(self.selector, ClientSelector):
            raise ValueError(f"critical_fl: selector is {self.selector!r}; it must be a client selector, as Uniform()")
        if overrides(self.selector, "probes"):
            name = type(self.selector).__name__
            raise ValueError(f"critical_fl: selector is {name}, which probes; wrap one that does not, as Uniform()")
        if NORM in self.selector.signals().at("trained"):
            name = type(self.selector).__name__
            raise ValueError(f"critical_fl: selector is {name}, which has a signal {NORM!r} itself; wrap another one")

    @property
    def accepts_before_upload(self) -> bool:
        """Returns the wrapped selector's value."""
        return self.selector.accepts_before_upload

    @property
    def accepts(self) -> bool:
        """Returns whether the wrapped selector does."""
        return self.selector.accepts

    @property
    def replacement(self) -> bool:
        """Returns the wrapped selector's value."""
        return self.selector.replacement

    @property
    def needs_classes(self) -> bool:
        """Returns the wrapped selector's value."""
        return self.selector.needs_classes

    @property
    def counts_examples(self) -> bool:
        """Returns the wrapped selector's value."""
        return self.selector.counts_examples

    @property
    def ordered(self) -> bool:
        """Returns the wrapped selector's value."""
        return self.selector.ordered

    @property
    def uses_rounds(self) -> bool:
        """Returns whether the wrapped selector does."""
        return self.selector.uses_rounds

    def signals(self) -> Signals:
        """Returns the wrapped selector's signals, and the members' gradient norms."""
        inner = self.selector.signals()
        trained = {**inner.at("trained"), NORM: signals.GradientNorm()}
        return Signals(before=inner.before, trained=trained, after=inner.after, upfront=inner.upfront)

    def init(self, key: PRNGKey, ctx: Context, host: Host, **upfront: Any) -> CriticalFLState:
        """Returns the smallest size; raises `ValueError` if it exceeds the cohort, or as the wrapped selector does."""
        if self.least(ctx) > ctx.m:
            raise ValueError(
                f"critical_fl: smallest is {self.smallest} members, but the cohort has m = {ctx.m} slots; "
                "m is the size of the largest cohort"
            )
        return self.begin(self.selector.init(key, ctx, host, **upfront), ctx)

    def state_shape(self, key: PRNGKey, ctx: Context, host: Host) -> CriticalFLState:
        """Returns shapes and types of the state."""
        return self.begin(self.selector.state_shape(key, ctx, host), ctx)

    def begin(self, inner: StrategyState, ctx: Context) -> CriticalFLState:
        """Returns the state before round 0, given that of the wrapped selector."""
        none = jnp.zeros((), jnp.int32)
        size = jnp.asarray(self.least(ctx), jnp.int32)
        return CriticalFLState(inner, size, jnp.zeros(self.window + 1), none, jnp.zeros((), bool))

    def upfront(self, ctx: Context, host: Host) -> Upfront | None:
        """Returns the upfront cost of the wrapped selector."""
        return self.selector.upfront(ctx, host)

    def asks(self, round: Int[Array, ""]) -> Bool[Array, ""] | bool:
        """Returns whether the wrapped selector asks for its signals."""
        return self.selector.asks(round)

    def candidates(self, key: PRNGKey, state: CriticalFLState, ctx: Context) -> Int[Array, "d"] | None:
        """Returns the wrapped selector's candidates."""
        return self.selector.candidates(key, state.inner, ctx)

    def select(self, key: PRNGKey, state: CriticalFLState, ctx: Context, **before: Any) -> Cohort:
        """Returns the first members of the wrapped selector's cohort, or random ones if its slots are `ordered`."""
        if self.selector.ordered:
            key, key_kept = jax.random.split(key)
        cohort = self.selector.select(key, state.inner, ctx, **before)
        place = jnp.cumsum(cohort.mask)
        if self.selector.ordered:
            noise = jnp.where(cohort.mask, jax.random.uniform(key_kept, cohort.mask.shape), 2.0)
            place = jnp.argsort(jnp.argsort(noise)) + 1
        mask = cohort.mask & (place <= state.size)
        kept = cohort.mask.sum() / jnp.maximum(mask.sum(), 1)  # keeps the expected sum of unbiased weights
        client, weight = jnp.where(mask, cohort.client, PAD_CLIENT), jnp.where(mask, kept * cohort.weight, 0.0)
        return cohort.replace(client=client, mask=mask, weight=weight)

    def accept(self, key: PRNGKey, state: CriticalFLState, ctx: Context, cohort: Cohort, **trained: Any) -> Cohort:
        """Returns the members that the wrapped selector accepts."""
        inner = {name: value for name, value in trained.items() if name != NORM}
        return self.selector.accept(key, state.inner, ctx, cohort, **inner)

    def observe(
        self, key: PRNGKey, state: CriticalFLState, ctx: Context, cohort: Cohort, **signals: Any
    ) -> CriticalFLState:
        """Returns the state with the wrapped selector's new state and, if this round has a check, the next size."""
        norm = signals.pop(NORM)
        inner = self.selector.observe(key, state.inner, ctx, cohort, **signals)
        mean = jnp.sum(jnp.where(cohort.mask, norm**2, 0.0)) / jnp.maximum(cohort.mask.sum(), 1)
        checked = self.check(state, mean, ctx)._replace(inner=())
        due = (ctx.round % self.interval == 0) & cohort.mask.any()  # an empty cohort is not one of norm 0
        return choose(due, checked, state._replace(inner=()))._replace(inner=inner)

    def check(self, state: CriticalFLState, norm: Float[Array, ""], ctx: Context) -> CriticalFLState:
        """Returns the state with the next size, after a check that measured `norm`."""
        checks, norms = state.checks + 1, jnp.append(state.norms[1:], norm)
        reached = state.reached | (state.size == ctx.m)
        old = jnp.maximum(norms[:-1].mean(), SMALLEST)
        critical = ((norms[1:].mean() - old) / old > self.threshold) | (checks <= self.warmup)
        larger = jnp.where(reached, state.size, jnp.minimum(ctx.m, 2 * state.size))
        smaller = jnp.maximum(self.least(ctx), state.size - jnp.maximum(state.size // 2, 1))
        return CriticalFLState(state.inner, jnp.where(critical, larger, smaller), norms, checks, reached)

    def least(self, ctx: Context) -> int:
        """Returns the smallest size."""
        return max(1, ctx.m // 6) if self.smallest is None else self.smallest


NORM = "federated_gradient_norm"
"""Name of the signal that `CriticalFL` adds."""
