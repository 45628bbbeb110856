"""FedCor: clients whose training should lower the loss of all clients, by its correlation with theirs."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.arrays import choose
from fedjax_sel.client_selection._gaussian_process import fit, greedy
from fedjax_sel.client_selection._ops import cohort_of, uniform_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["FedCor"]


class FedCorState(NamedTuple):
    """What `FedCor` carries from round to round.

    Attributes:
      factor: `X`; the loss changes have covariance `XᵀX + σ²I`.
      discount: `α` of each client.
      loss: of each client at the beginning of the last round; NaN: not asked in that round.
      changes: the loss changes to which the process is fitted.
      round: of each of them; -1: none yet.
      count: number of changes so far.
    """

    factor: Float[Array, "K N"]
    discount: Float[Array, "N"]
    loss: Float[Array, "N"]
    changes: Float[Array, "H N"]
    round: Int[Array, "H"]
    count: Int[Array, ""]


class FedCor(ClientSelector):
    """Models the changes of all clients' losses in a round as a draw of a Gaussian process, fitted during training.

    The cohort is chosen greedily, in `m` steps: the next client is the one of largest `α_k Σ_i p_i Σ_ik / sqrt(Σ_kk)`
    (`p` are the clients' shares of the examples), and the covariance is then conditioned on it. Each time a client is
    selected, its `α` is multiplied by `beta`; the next fit resets all to 1.

    Up to round `warm_up`, cohorts are uniform and all clients report their losses at the beginning of every round; at
    the end, the process is fitted with `first_steps` steps of Adam. Afterwards, in every round that `interval` divides,
    a uniform cohort trains for this purpose alone and its model is discarded (`ClientSelector.probes`); the change of
    all losses is one more draw, and `steps` steps follow. A draw that is `age` rounds old has weight `gamma^age`, or 0
    if it is older than `history`; the mean is the weighted mean of the draws. Losses are measured on the hold-out
    examples if `Experiment.signal_split` says so, as in the source. An unavailable client gets the mean change of the
    others; a round in which no change is known is no draw.

    This follows the authors' code (with its `--update_mean`), which merges by the unweighted mean; only the times at
    which losses are measured differ. A probe starts from the model before its round; in the authors' code, from the
    one after it. The change in round `warm_up`, the newest draw of their first fit, is not known yet here and is left
    out.

    Attributes:
      beta: factor on the `α` of a selected client.
      gamma: factor on the weight of a draw per round of age.
      noise: `σ`. With fewer clients than `dimension` and `σ` below about 1e-3, a fit can fail in 32 bits; from then on
        cohorts are uniform, and the run says that scores are NaN.
      learning_rate: of Adam.
      warm_up: last round of uniform cohorts, from 0.
      interval: rounds between two fits after the warm-up.
      history: age in rounds of the oldest draw used.
      dimension: rows of `X`.
      first_steps, steps: steps of Adam in the first fit and in the others.

    Source: Tang et al., "FedCor: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated
    Learning", CVPR 2022, https://arxiv.org/abs/2103.13822, Algorithm 1; code: https://github.com/Yoruko-Tang/FedCor.
    The defaults are those for Fashion-MNIST in the copy of the code that GPFL's authors ran; the code's own README has
    beta 0.9 for it (CIFAR-10: warm_up 20, interval 50, history 500, beta 0.9, gamma 0.99).

    >>> FedCor(warm_up=20, interval=50).signals().before
    {'loss': Loss()}
    """

    beta: Scalar = param(default=0.95, low=0, high=1)
    gamma: Scalar = param(default=0.95, low=0, high=1)
    noise: Scalar = param(default=0.01, above=0)
    learning_rate: Scalar = param(default=0.01, above=0)
    warm_up: int = static(default=15, low=1)
    interval: int = static(default=10, low=1)
    history: int = static(default=100, low=1)
    dimension: int = static(default=15, low=1)
    first_steps: int = static(default=1000, low=1)
    steps: int = static(default=100, low=1)

    def signals(self) -> Signals:
        """Returns all clients' losses, before training."""
        return Signals(before=[signals.Loss()])

    def asks(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether the clients report: during the warm-up, and in rounds with a probe."""
        return (round <= self.warm_up) | self.probes(round)

    def probes(self, round: Int[Array, ""]) -> Bool[Array, ""]:
        """Returns whether a probe trains: every `interval` rounds after the warm-up."""
        return (round > self.warm_up) & (round % self.interval == 0)

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> FedCorState:
        """Returns a random `X`, and no draws yet."""
        n, draws = ctx.num_clients, self.warm_up + self.history // self.interval + 1
        return FedCorState(
            factor=jax.random.normal(key, (self.dimension, n)) / jnp.sqrt(self.dimension),
            discount=jnp.ones(n),
            loss=jnp.full(n, jnp.nan, jnp.float32),
            changes=jnp.zeros((draws, n)),
            round=jnp.full(draws, -1, jnp.int32),
            count=jnp.zeros((), jnp.int32),
        )

    def select(self, key: PRNGKey, state: FedCorState, ctx: Context, *, loss: Float[Array, "N"]) -> Cohort:
        """Returns a uniform cohort during the warm-up, then a greedy one by the process."""

        def choose_greedily():
            weight = ctx.num_examples / ctx.num_examples.sum()
            client, score = greedy(state.factor, self.noise, weight, state.discount, ctx.available, ctx.m)
            by_chance = uniform_m(key, ctx.available, ctx.m).replace(nan_scores=ctx.available.sum())
            return choose(jnp.isnan(state.factor).any(), by_chance, cohort_of(client, score > -jnp.inf))

        return jax.lax.cond(ctx.round <= self.warm_up, lambda: uniform_m(key, ctx.available, ctx.m), choose_greedily)

    def observe(
        self,
        key: PRNGKey,
        state: FedCorState,
        ctx: Context,
        cohort: Cohort,
        *,
        loss: Float[Array, "N"],
        probed_loss: Float[Array, "N"],
    ) -> FedCorState:
        """Returns the state with one more draw if the change of the losses is known, refitted if a fit is due."""
        t, probed = ctx.round, self.probes(ctx.round)
        change = jnp.where(probed, probed_loss, loss) - jnp.where(probed, loss, state.loss)
        known = ctx.available & jnp.isfinite(change)
        moved = (jnp.where(known, change, 0) != 0).any()  # a round from which nobody returned tells nothing
        new = (probed | ((t > 0) & (t <= self.warm_up))) & moved
        place = jnp.where(new, state.count % len(state.round), len(state.round))
        others = jnp.where(known, change, 0).sum() / jnp.maximum(known.sum(), 1)
        changes = state.changes.at[place].set(jnp.where(known, change, others), mode="drop")
        draw_round = state.round.at[place].set(jnp.where(probed, t, t - 1), mode="drop")

        age = t - draw_round
        weight = jnp.where((draw_round >= 0) & (age <= self.history), self.gamma ** age.astype(jnp.float32), 0.0)
        first = t == self.warm_up
        factor = jax.lax.cond(
            first | probed,
            lambda factor: fit(
                factor,
                self.noise,
                changes,
                weight,
                jnp.where(first, self.first_steps, self.steps),
                self.learning_rate,
            ),
            lambda factor: factor,
            state.factor,
        )

        beta = jnp.where(t > self.warm_up, self.beta, 1.0)
        discount = state.discount.at[cohort.selected].multiply(beta, mode="drop")
        return FedCorState(
            factor=factor,
            discount=jnp.where(probed, jnp.ones_like(discount), discount),
            loss=jnp.where(self.asks(t) & ctx.available, loss, jnp.nan),
            changes=changes,
            round=draw_round,
            count=state.count + new,
        )
