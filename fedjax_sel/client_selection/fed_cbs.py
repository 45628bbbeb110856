"""Fed-CBS: cohorts whose pooled examples are balanced over the classes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import cohort_of, draw_left
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey

__all__ = ["FedCBS"]


class FedCBSState(NamedTuple):
    """What `FedCBS` carries from round to round.

    Attributes:
      counts: examples of each client by class.
      selected: how often each client was selected, plus 1.
    """

    counts: Float[Array, "N C"]
    selected: Float[Array, "N"]


class FedCBS(ClientSelector):
    """`m` clients drawn one after another; a client is likelier the more it balances the cohort's classes.

    The imbalance of a set `M` of clients is `QCID(M) = Σ_c (q_c - 1/C)²`, with `q_c` the share of class `c` in their
    pooled examples. It depends only on the inner products of the clients' label counts, which the source computes under
    encryption. Here each client sends its counts to the server once; the numbers are the same.

    The first client, `c`, is drawn in proportion to `1/QCID({i})^β₁ + λ sqrt(3 ln t / (2 T_i))`, with `t` the round,
    from 1, and `T_i` how often `i` was selected, plus 1. The second is drawn in proportion to `1/QCID({c, i})^β₂`,
    which the source divides by that of the first client, the same for all `i`. The `k`-th is drawn in proportion to
    `QCID(M)^β_{k-1} / QCID(M ∪ {i})^β_k`, whose numerator is also the same for all `i`. `β_k = beta k`. An imbalance
    counts as at least `floor`, so that a perfectly balanced cohort is the likeliest, and not a division by 0.

    Attributes:
      exploration: `λ`.
      beta: `β_k / k`.
      floor: smallest imbalance that is distinguished from 0.

    Source: Zhang et al., "Fed-CBS: A Heterogeneity-Aware Client Sampling Mechanism for Federated Learning via
    Class-Imbalance Reduction", 2023, https://arxiv.org/abs/2209.15245, sections 3 and 4.

    >>> FedCBS().signals().upfront
    {'label_counts': LabelCounts()}
    """

    exploration: Scalar = param(default=10.0, low=0)
    beta: Scalar = param(default=1.0, low=0)
    floor: Scalar = param(default=1e-6, above=0)

    def signals(self) -> Signals:
        """Returns the label counts, once."""
        return Signals(upfront=[signals.LabelCounts()])

    def init(self, key: PRNGKey, ctx: Context, host: Host, *, label_counts: Int[Array, "N C"]) -> FedCBSState:
        """Returns the label counts, and a selection count of 1 for each client."""
        return FedCBSState(label_counts.astype(jnp.float32), jnp.ones(ctx.num_clients))

    def select(self, key: PRNGKey, state: FedCBSState, ctx: Context) -> Cohort:
        """Returns the cohort in the order of the draws."""
        t = ctx.round + 1.0
        bonus = self.exploration * jnp.sqrt(3 * jnp.log(t) / (2 * state.selected))

        def step(k, carry):
            pooled, left, client = carry
            balance = -self.beta * (k + 1) * jnp.log(jnp.maximum(imbalance(pooled[None] + state.counts), self.floor))
            log_chance = jnp.where(k == 0, jnp.logaddexp(balance, jnp.log(bonus)), balance)
            drawn, left = draw_left(jax.random.fold_in(key, k), log_chance, left)
            pooled = pooled + jnp.where(drawn >= 0, state.counts[drawn], 0.0)
            return pooled, left, client.at[k].set(drawn)

        start = jnp.zeros(state.counts.shape[1]), ctx.available, jnp.full(ctx.m, PAD_CLIENT)
        client = jax.lax.fori_loop(0, ctx.m, step, start)[-1]
        return cohort_of(client, client >= 0)

    def observe(self, key: PRNGKey, state: FedCBSState, ctx: Context, cohort: Cohort) -> FedCBSState:
        """Returns the state with one more selection of each selected client."""
        return state._replace(selected=state.selected.at[cohort.selected].add(1.0, mode="drop"))


def imbalance(counts: Float[Array, "N C"]) -> Float[Array, "N"]:
    """Returns `Σ_c (q_c - 1/C)²`, QCID, of each row of label counts; a row without examples counts as one class."""
    total, classes = counts.sum(1, keepdims=True), counts.shape[1]
    part = counts / jnp.maximum(total, 1.0)
    return jnp.where(total[:, 0] > 0, jnp.square(part - 1 / classes).sum(1), 1 - 1 / classes)
