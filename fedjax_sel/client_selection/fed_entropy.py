"""FedEntropy: merges the members whose pooled predictions have the highest entropy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._labels import entropy_of
from fedjax_sel.client_selection._ops import gumbel_m
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["FedEntropy"]

TOLERANCE = 1e-6
"""Smallest rise of an entropy, in nats, that is not rounding."""


class FedEntropy(ClientSelector):
    """Draws clients by how often they were accepted, and merges those whose pooled soft labels are most diverse.

    A cohort is drawn in proportion to the clients' values, which start at 1; with probability ε it is uniform. Each
    member trains and sends its soft labels, the mean prediction `s_i` of its new model on its own examples. From `A`,
    all members that returned, the server repeatedly removes the one without which `H(Σ_A n_i s_i / Σ_A n_i)` is
    largest, as long as this entropy rises. A remaining member uploads its model and gains 1 in value; the value of a
    removed member is halved.

    Besides training, a member pays a forward pass over its examples and sends `C` numbers; removed members upload no
    model. The source aggregates by size (`Mean("size")`).

    Attributes:
      epsilon: probability of a uniform cohort.

    Source: Ling et al., "FedEntropy: Efficient Device Grouping for Federated Learning Using Maximum Entropy Judgment",
    2022, https://arxiv.org/abs/2205.12038; ε and the values are those of the authors' code,
    https://github.com/FedEntropy/FedEntropy.

    >>> list(FedEntropy().signals().trained)
    ['soft_labels']
    """

    epsilon: Scalar = param(default=0.2, low=0, high=1)

    def signals(self) -> Signals:
        """Returns the soft labels of each member's new model on its own examples."""
        return Signals(trained=[signals.SoftLabels()])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N"]:
        """Returns the clients' values, all 1."""
        return jnp.ones(ctx.num_clients)

    def select(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Cohort:
        """Returns clients drawn in proportion to their values, or uniformly."""
        key_coin, key_client = jax.random.split(key)
        explore = jax.random.uniform(key_coin) < self.epsilon
        log_value = jnp.log(jnp.maximum(state, jnp.finfo(state.dtype).tiny))
        return gumbel_m(key_client, jnp.where(explore, 0.0, log_value), ctx.available, ctx.m)

    def accept(
        self,
        key: PRNGKey,
        state: Float[Array, "N"],
        ctx: Context,
        cohort: Cohort,
        *,
        soft_labels: Float[Array, "m C"],
    ) -> Cohort:
        """Returns the cohort reduced to the members whose pooled soft labels are most diverse."""
        told = cohort.mask & jnp.isfinite(soft_labels).all(1)  # others are rejected, and say nothing of the rest
        size = jnp.where(told, ctx.num_examples[cohort.client], 0)
        mask = judge(size[:, None] * jnp.where(told[:, None], soft_labels, 0.0), told)
        return cohort.replace(mask=mask, weight=jnp.where(mask, cohort.weight, 0.0))

    def observe(
        self,
        key: PRNGKey,
        state: Float[Array, "N"],
        ctx: Context,
        cohort: Cohort,
        *,
        soft_labels: Float[Array, "m C"],
    ) -> Float[Array, "N"]:
        """Returns the updated values; members that returned nothing keep theirs."""
        value = state[cohort.client]
        returned = soft_labels.sum(1) > 0
        new = jnp.where(cohort.mask, value + 1, jnp.where(returned, value / 2, value))
        return state.at[cohort.selected].set(new, mode="drop")


def judge(soft: Float[Array, "m C"], mask: Bool[Array, "m"]) -> Bool[Array, "m"]:
    """Returns the members left when removing one no longer raises the entropy of the sum over those left.

    At least one is left if there was one; among equal ones, the first is removed.

    Args:
      soft: soft labels, times the number of the clients' examples.
      mask: which members have soft labels.
    """

    def step(_, left):  # maximum entropy judgment
        kept = jnp.where(left[:, None], soft, 0.0)
        total = kept.sum(0)
        without = jnp.where(left, entropy_of(total[None] - kept), -jnp.inf)
        worst = jnp.argmax(without)
        better = (without[worst] > entropy_of(total) + TOLERANCE) & (left.sum() > 1)
        return left.at[worst].set(left[worst] & ~better)

    return jax.lax.fori_loop(0, mask.shape[0], step, mask)
