"""K-Vib: unbiased independent draws, with probabilities that follow the norms of updates."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._inclusion import fill_chances
from fedjax_sel.client_selection._ops import top_m
from fedjax_sel.client_selection._unbiased import target_weights
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["KVib"]


class Chances(NamedTuple):
    """Sampling probabilities of a round.

    Attributes:
      drawn: of each client.
      theta: `θ`, the share of them that is the same for all clients.
    """

    drawn: Float[Array, "N"]
    theta: Float[Array, ""]


class Feedback(NamedTuple):
    """What `KVib` carries from round to round.

    Attributes:
      total: `ω`.
      largest: `a_i²` of all updates so far.
    """

    total: Float[Array, "N"]
    largest: Float[Array, ""]


class KVib(ClientSelector):
    """Draws every client independently, `K` on average; at most `m` of them are members.

    The probabilities are `p̃ = (1 - θ) p + θ K / N` with `θ = (N / (T K))^(1/3)` and `p_i = min(1, c sqrt(ω_i + γ))`,
    which sum to `K`. `ω_i` sums `a_i² / p̃_i` over the rounds in which client `i` was drawn, with `a_i = λ_i ‖Δ_i‖` and
    `λ_i = n_i / n`; `N`, `K` and `n` refer to the available clients. An update has weight `λ_i / p̃_i`, so
    `Σ λ_i Δ_i / p̃_i` is an unbiased estimate of the sum over all clients: aggregate with `Mean("cohort")` (with
    `"size"`, the examples would count twice). If more than `m` clients are drawn, `m` of them stay, all subsets equally
    likely, and the weights (also in `ω`) are multiplied by the number drawn over `m`, which keeps the estimate
    unbiased; with `K = m`, a cohort has 8.8 members on average for `m = 10` of 100 clients. It can happen that no
    client is drawn. `θ` is at most 1, where the probabilities are equal: that is so in runs of `T <= N / K` rounds.

    The server computes the norms from the updates, so this costs the clients nothing.

    Attributes:
      expected: `K`, as a fraction of the cohort's `m` slots.
      regularizer: `r` in `γ = r N / (θ K)`, in squared units of `a`; None: the largest `a_i²` so far, since the
        source's analysis has `G²`, where `G` bounds all `a_i`. The commands of the authors' code give 0.1, which is so
        much larger than `a_i²` in many federations (about `‖Δ_i‖² / N²`) that all probabilities stay nearly equal.
      rule: `"text"`, or `"code"` for `p_i` in proportion to `ω_i + γ` without the root, as in the authors' code.

    Source: Zeng et al., "Enhanced Federated Optimization: Adaptive Unbiased Client Sampling with Reduced Variance",
    2023, https://arxiv.org/abs/2310.02698; code: https://github.com/dunzeng/K-Vib.

    >>> list(KVib().signals().after)
    ['update_norm']
    """

    counts_examples: ClassVar[bool] = True

    expected: Scalar = param(default=1.0, above=0, high=1)
    regularizer: Scalar | None = param(default=None, above=0)
    rule: str = static(default="text", choices=["text", "code"])

    uses_rounds: ClassVar[bool] = True  # `θ`, the share of exploration, falls with `T`

    def signals(self) -> Signals:
        """Returns the norms of the updates."""
        return Signals(after=[signals.UpdateNorm()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Feedback:
        """Returns the state before any update."""
        return Feedback(jnp.zeros(ctx.num_clients), jnp.zeros(()))

    def chances(self, state: Feedback, ctx: Context) -> Chances:
        """Returns `p̃`, 0 for unavailable clients; `N` and `K` count available ones."""
        n = jnp.maximum(ctx.available.sum(), 1).astype(jnp.float32)
        k = jnp.minimum(self.expected * ctx.m, n)
        theta = jnp.minimum((n / (ctx.rounds * k)) ** (1 / 3), 1.0)
        bound = jnp.where(state.largest > 0, state.largest, 1.0)  # G²; without any update, all chances are equal
        r = bound if self.regularizer is None else self.regularizer
        log_weight = jnp.log(state.total + r * n / (theta * k)) / (1 if self.rule == "code" else 2)
        p, _ = fill_chances(jnp.where(ctx.available, log_weight, -jnp.inf), k)
        return Chances(jnp.where(ctx.available, (1 - theta) * p + theta * k / n, 0.0), theta)

    def select(self, key: PRNGKey, state: Feedback, ctx: Context) -> Cohort:
        """Returns the drawn clients, weighted by `λ_i / p̃_i`."""
        key_coin, key_tie = jax.random.split(key)
        chance = self.chances(state, ctx).drawn
        drawn = ctx.available & (jax.random.uniform(key_coin, chance.shape) < chance)
        cohort = top_m(key_tie, drawn.astype(jnp.float32), drawn, ctx.m)
        thinned = jnp.maximum(drawn.sum() / ctx.m, 1.0)
        share = target_weights("size", ctx)
        weight = thinned * share[cohort.client] / jnp.maximum(chance[cohort.client], jnp.finfo(chance.dtype).tiny)
        return cohort.replace(weight=jnp.where(cohort.mask, weight, 0.0))

    def observe(
        self,
        key: PRNGKey,
        state: Feedback,
        ctx: Context,
        cohort: Cohort,
        *,
        update_norm: Float[Array, "m"],
    ) -> Feedback:
        """Returns the state with each returned member's `a_i² / p̃_i = λ_i ‖Δ_i‖² · (λ_i / p̃_i)`, if it is finite."""
        share = target_weights("size", ctx)[cohort.client]
        cohort = cohort.replace(mask=cohort.mask & jnp.isfinite(update_norm**2 * jnp.maximum(cohort.weight, 1.0)))
        feedback = share * update_norm**2 * cohort.weight
        largest = jnp.where(cohort.mask, (share * update_norm) ** 2, 0.0).max()
        return Feedback(state.total.at[cohort.returned].add(feedback, mode="drop"), jnp.maximum(state.largest, largest))
