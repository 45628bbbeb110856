"""K-Vib: independent draws with chances that follow the lengths of updates, without bias."""

from typing import NamedTuple

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
    """Of a round.

    Attributes:
      drawn: of each client, to be drawn.
      theta: part of it that is the same for all.
    """

    drawn: Float[Array, "N"]
    theta: Float[Array, ""]


class KVib(ClientSelector):
    """Every client is drawn by a coin of its own; a cohort has `K` members on average, at most `m`.

    The chances are `p̃ = (1 - θ) p + θ K / N` with `θ = (N / (T K))^(1/3)` and `p_i = min(1, c sqrt(ω_i + γ))` of sum
    `K`; `ω_i` sums `a_i² / p̃_i` over the rounds in which client `i` was drawn, `a_i = λ_i ‖Δ_i‖` and `λ_i = n_i / n`,
    where `N`, `K` and `n` are of those who can be reached.
    An update weighs `λ_i / p̃_i`, so that `Σ λ_i Δ_i / p̃_i` is without bias that of all clients: aggregate with
    `Mean("cohort")`. Where more than `m` are drawn, `m` of them stay, all subsets equally likely, and the weights are
    multiplied by how many were drawn over `m`, which keeps it without bias. It can happen that nobody is drawn.

    The server computes the lengths from the updates, so that clients pay nothing for it.

    Attributes:
      expected: `K`, as a fraction of the cohort's `m` slots.
      regularizer: `r` in `γ = r N / (θ K)`, in squared units of `a`.
      rule: `"text"`, or `"code"` for `p_i` in proportion to `ω_i + γ` without the root, as the authors' code has it.

    Source: Zeng et al., "Enhanced Federated Optimization: Adaptive Unbiased Client Sampling with Reduced Variance",
    2023, https://arxiv.org/abs/2310.02698; code: https://github.com/dunzeng/K-Vib.

    >>> list(KVib().signals().after)
    ['update_norm']
    """

    expected: Scalar = param(default=1.0, above=0, high=1)
    regularizer: Scalar = param(default=0.1, above=0)
    rule: str = static(default="text", choices=["text", "code"])

    @property
    def uses_rounds(self) -> bool:
        """Returns true: the share of exploring falls with `T`."""
        return True

    def signals(self) -> Signals:
        """Returns the lengths of the updates."""
        return Signals(after=[signals.UpdateNorm()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns `ω`: 0."""
        return jnp.zeros(ctx.num_clients)

    def chances(self, state: Float[Array, "N"], ctx: Context) -> Chances:
        """Returns `p̃`, 0 for who cannot be reached; `N` and `K` count whom can be."""
        n = jnp.maximum(ctx.available.sum(), 1).astype(jnp.float32)
        k = jnp.minimum(self.expected * ctx.m, n)
        theta = jnp.minimum((n / (ctx.rounds * k)) ** (1 / 3), 1.0)
        feedback = state + self.regularizer * n / (theta * k)
        log_weight = jnp.log(feedback) / (1 if self.rule == "code" else 2)
        p, _ = fill_chances(jnp.where(ctx.available, log_weight, -jnp.inf), k)
        return Chances(jnp.where(ctx.available, (1 - theta) * p + theta * k / n, 0.0), theta)

    def select(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Cohort:
        """Returns who is drawn, weighted by `λ_i / p̃_i`."""
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
        state: Float[Array, "N"],
        ctx: Context,
        cohort: Cohort,
        *,
        update_norm: Float[Array, "m"],
    ) -> Float[Array, "N"]:
        """Returns `ω` with the lengths of those who came back, `a_i² / p̃_i = λ_i ‖Δ_i‖² · (λ_i / p̃_i)`."""
        share = target_weights("size", ctx)[cohort.client]
        feedback = share * update_norm**2 * cohort.weight
        return state.at[cohort.returned].add(feedback, mode="drop")
