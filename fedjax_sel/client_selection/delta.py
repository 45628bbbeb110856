"""DELTA: samples clients whose gradients differ from the mean, or are noisy, more often."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import gumbel_m
from fedjax_sel.client_selection._stale_chances import draw_clients, renew_chances, weigh_draws
from fedjax_sel.client_selection._unbiased import normalize
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["Delta"]


class Delta(ClientSelector):
    """`m` draws with replacement, with probability `p_i ∝ sqrt(α₁ ζ_i² + α₂ σ_i²)` and weight `1 / (m N p_i)`.

    `ζ_i = ‖∇F_i(w) - ∇f(w)‖` is the distance of a client's gradient from the mean of all, `σ_i` the deviation of its
    minibatch gradients. With the aggregation's `weighting: cohort`, the sum equals full participation in expectation,
    with weight `1/N` for each client (the weights need not sum to 1; `client` normalises them, which biases the sum).

    With `gradients="stale"`, the practical rule, `p` starts at `1/N`. After a round, the members redistribute their
    joint probability, `p_i ← s_i / Σ_S s · (1 - Σ_{j ∉ S} p_j)` with `s_i = sqrt(α₁ ζ_i² + α₂ σ_i²)` and `∇f` the mean
    over the distinct members; the other clients keep theirs. A member makes two more forward and backward passes over
    its examples than training alone, and sends `σ_i` and its gradient, a model's worth of numbers or `sketch`. With
    `"all"`, which the theory covers, all clients do so in every round, and `p` is that round's. A round with a single
    distinct member, or in which all `s` are 0, changes nothing.

    `variant="code"` follows one file of the authors' code (`LEAF/local_update_FEMNIST.py`; their others weigh the
    shares otherwise, draw with replacement, or ask the members alone) and always asks all clients: the probability
    `p_i` is proportional to `α₁ l_i ‖g_i - ḡ‖ + α₂ sqrt(l_i)`, where `l_i`, the client's share of the examples,
    replaces `σ_i`. Draws are without replacement, with weight `l_i / (N p_i)`, `l_i` the share of the cohort's examples
    and `N` the number of available clients, so they are biased. In the authors' code, where `α₁ = α₂ = 0.5`, `g_i` is
    the mean of the minibatch gradients along one local epoch, and examples are counted in batches (or not at all); here
    it is the gradient.

    The paper's factors, `α₁ = 20 K² L η_L` and `α₂ = 5 K L η_L + η / n` (`η_L` the clients' learning rate, `η` the
    server's), depend on an unknown smoothness `L`; the defaults are those of its usual implementation.

    Attributes:
      alpha1, alpha2: `α₁`, `α₂`.
      gradients: `"stale"` or `"all"`.
      variant: `"paper"` or `"code"`.
      batch_size: size of the minibatches for `σ_i`; give it that of local training. With no more examples, `σ_i = 0`.
      sketch: length of the sketch that represents a gradient; None: all `P` numbers.

    Source: Wang et al., "DELTA: Diverse Client Sampling for Fasting Federated Learning", 2023,
    https://arxiv.org/abs/2205.13925, its practical algorithm; code: https://github.com/L3030/DELTA_FL.

    >>> Delta(sketch=8).signals().before
    {'gradient': Gradient(k=8, before_training=False), 'local': GradientNoise(batch_size=64, around='mean')}
    """

    replacement: ClassVar[bool] = True

    alpha1: Scalar = param(default=0.8, low=0)
    alpha2: Scalar = param(default=0.2, low=0)
    gradients: str = static(default="stale", choices=["stale", "all"])
    variant: str = static(default="paper", choices=["paper", "code"])
    batch_size: int = static(default=64, low=1)
    sketch: int | None = static(default=None, low=1)

    @property
    def counts_examples(self) -> bool:
        """Returns whether the weights are those of the authors' code, which are by size."""
        return self.variant == "code"

    def signals(self) -> Signals:
        """Returns the gradients at the global model and, but for the code's rule, `σ_i` of each client."""
        local = {} if self.variant == "code" else {"local": signals.GradientNoise(self.batch_size)}
        return Signals(before={"gradient": signals.Gradient(self.sketch), **local})

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns equal probabilities."""
        return jnp.full(ctx.num_clients, 1 / ctx.num_clients)

    def candidates(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Int[Array, "m"] | None:
        """Returns the draws, so that only members are asked; None if all clients are asked."""
        stale = self.gradients == "stale" and self.variant == "paper"
        return draw_clients(key, state, ctx) if stale else None

    def score(
        self, gradient: Float[Array, "d k"], local: Float[Array, "d"] | Int[Array, "d"], mask: Bool[Array, "d"]
    ) -> Float[Array, "d"]:
        """Returns `s` for the clients in the mask, which holds each client once; 0 for the others.

        It is NaN for a client whose gradient is not finite, which the mean leaves out.

        Args:
          gradient: of each client.
          local: `σ_i`; for the code's rule, the number of examples.
          mask: which clients count.
        """
        told = mask & jnp.isfinite(gradient).all(1)
        mean = jnp.where(told[:, None], gradient, 0.0).sum(0) / jnp.maximum(told.sum(), 1)
        gradient = jnp.where(told[:, None], gradient, jnp.nan)
        zeta = jnp.linalg.norm(gradient - mean[None], axis=1)
        if self.variant == "code":
            part = normalize(jnp.where(mask, local, 0).astype(jnp.float32))
            return jnp.where(mask, self.alpha1 * part * zeta + self.alpha2 * jnp.sqrt(part), 0.0)
        return jnp.where(mask, jnp.sqrt(self.alpha1 * zeta**2 + self.alpha2 * local**2), 0.0)

    def select(
        self,
        key: PRNGKey,
        state: Float[Array, "N"],
        ctx: Context,
        *,
        gradient: Float[Array, "d k"],
        local: Float[Array, "d"] | None = None,
    ) -> Cohort:
        """Returns the clients that were asked, or draws by all clients' gradients."""
        if self.variant == "code":
            score = self.score(gradient, ctx.num_examples, ctx.available)
            cohort = gumbel_m(key, jnp.log(score), ctx.available, ctx.m)
            share = normalize(jnp.where(cohort.mask, ctx.num_examples[cohort.client], 0).astype(jnp.float32))
            chance = ctx.available.sum() * normalize(jnp.where(jnp.isfinite(score), score, 0.0))[cohort.client]
            return cohort.replace(weight=jnp.where(cohort.mask, share / jnp.where(chance > 0, chance, 1.0), 0.0))
        if local is None:
            raise TypeError("delta: select() lacks the signal 'local'")
        if ctx.candidates is not None:
            return weigh_draws(ctx.candidates, state, ctx)
        score = self.score(gradient, local, ctx.available)
        return weigh_draws(draw_clients(key, score, ctx), score, ctx)

    def observe(
        self,
        key: PRNGKey,
        state: Float[Array, "N"],
        ctx: Context,
        cohort: Cohort,
        *,
        gradient: Float[Array, "d k"],
        local: Float[Array, "d"] | None = None,
    ) -> Float[Array, "N"]:
        """Returns the probabilities, updated for the members that returned."""
        if ctx.candidates is None or local is None:
            return state
        return renew_chances(state, cohort.client, cohort.mask, self.score(gradient, local, cohort.mask))
