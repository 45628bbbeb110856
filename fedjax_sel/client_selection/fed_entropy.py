"""FedEntropy: of the trained, those whose predictions together have the highest entropy."""

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
"""Nats by which an entropy must rise; less is rounding."""


class FedEntropy(ClientSelector):
    """Draws clients by how often they were accepted, and merges those of whom the pooled soft labels are most diverse.

    A cohort is drawn in proportion to the clients' values, which begin at 1; with chance ε it is uniform. Each member
    trains and sends its soft labels, the mean prediction `s_i` of its new model on its own examples. From `A`, all who
    returned, the server takes away the one without whom `H(Σ_A n_i s_i / Σ_A n_i)` is largest, as long as it rises. Who
    is left uploads a model, and has one added to its value; who was taken away has its value halved.

    A member pays a forward pass over its examples and sends `C` numbers besides; the models of those taken away are not
    uploaded. Aggregation in the source is by size (`Mean("size")`).

    Attributes:
      epsilon: chance of a uniform cohort.

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
        """Returns the clients' values: 1."""
        return jnp.ones(ctx.num_clients)

    def select(self, key: PRNGKey, state: Float[Array, "N"], ctx: Context) -> Cohort:
        """Returns clients in proportion to their values, or uniform ones."""
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
        """Returns the cohort in which those count whose soft labels are most diverse."""
        weight = jnp.where(cohort.mask, ctx.num_examples[cohort.client], 0)[:, None] * soft_labels
        mask = judge(weight, cohort.mask)
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
        """Returns the values; those of who returned nothing are as they were."""
        value = state[cohort.client]
        returned = soft_labels.sum(1) > 0
        new = jnp.where(cohort.mask, value + 1, jnp.where(returned, value / 2, value))
        return state.at[cohort.selected].set(new, mode="drop")


def judge(soft: Float[Array, "m C"], mask: Bool[Array, "m"]) -> Bool[Array, "m"]:
    """Returns who is left of the mask when the entropy of the sum over those left no longer rises.

    At least one is left where there was one; of equal ones the first is taken away.

    Args:
      soft: soft labels, times the clients' examples.
      mask: whose there are.
    """

    def step(_, left):  # maximum entropy judgment
        kept = jnp.where(left[:, None], soft, 0.0)
        total = kept.sum(0)
        without = jnp.where(left, entropy_of(total[None] - kept), -jnp.inf)
        worst = jnp.argmax(without)
        better = (without[worst] > entropy_of(total) + TOLERANCE) & (left.sum() > 1)
        return left.at[worst].set(left[worst] & ~better)

    return jax.lax.fori_loop(0, mask.shape[0], step, mask)
