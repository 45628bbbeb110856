"""HACCS: the fastest clients of label clusters, with more slots for clusters that are fast or have a high loss."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._labels import cluster_labels
from fedjax_sel.client_selection._ops import draw_categorical, learn_values, round_down
from fedjax_sel.client_selection._strata import top_stratified
from fedjax_sel.client_selection._system import check_devices
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["HACCS"]


class HACCSState(NamedTuple):
    """What `HACCS` carries from round to round.

    Attributes:
      cluster: of each client.
      loss: last reported by each client, in nats.
    """

    cluster: Int[Array, "N"]
    loss: Float[Array, "N"]


class HACCS(ClientSelector):
    """Gives slots to clusters with similar labels, by speed and loss; within a cluster, to the fastest clients.

    Clusters are made once, by OPTICS on the distances between the clients' label distributions; a client outside all
    clusters gets its own. In every round, cluster `k` has weight `θ_k = ρ (1 - τ_k / max τ) + (1 - ρ) ℓ_k / Σ ℓ`, with
    `τ_k` the mean of its available clients' expected seconds per turn and `ℓ_k` the mean of their squared losses. It
    gets `⌊θ_k m / Σ θ⌋` slots; the remaining slots are drawn one after another in proportion to `θ`, among clusters
    with clients left.

    A client that has not trained is given the loss `ln C` of a random guess, and a member that did not return the mean
    loss of all; otherwise clusters that never return could take every slot, as losses fall. Within a cluster, the
    fastest keep their slots even if they never return. Each client sends its label counts, `C` numbers, once, and each
    member its training loss. The clients must have devices, whose expected
    seconds cost nothing to know. Noise on the counts, which the source allows for privacy, is left out. The authors'
    code divides the sums over available clients by the cluster's full size. In place of the loss, it squares the share
    of a client's examples that the new global model gets wrong, measured on every client after each round.

    Attributes:
      rho: ρ, the weight of speed relative to loss.
      eps: largest distance between neighbours.
      distance: `"code"` for Euclidean distances, as in the authors' code, or `"hellinger"`, as in the text. The code's
        `eps` belongs to the former: at 0.25, hardly any two of 100 clients with Dirichlet classes (α = 0.3) are
        neighbours by the latter.

    Source: Wolfrath et al., "HACCS: Heterogeneity-Aware Clustered Client Selection for Accelerated Federated Learning",
    2022, https://doi.org/10.1109/IPDPS53621.2022.00100; code: https://github.com/NS-PhD-Research/HACCS, from which the
    defaults and the rule for slots are.

    >>> list(HACCS().signals().after)
    ['training_loss']
    """

    rho: Scalar = param(default=0.5, low=0, high=1)
    eps: Scalar = param(default=0.25, above=0)
    distance: str = static(default="code", choices=["code", "hellinger"])

    def signals(self) -> Signals:
        """Returns the clients' label counts, once, and the members' training losses."""
        return Signals(upfront=[signals.LabelCounts()], after=[signals.TrainingLoss()])

    def init(self, key: PRNGKey, ctx: Context, host: Host, *, label_counts: Int[Array, "N C"]) -> HACCSState:
        """Returns the clusters, and the loss of a random guess; raises `ValueError` without devices."""
        check_devices("haccs", ctx)
        distance = "euclidean" if self.distance == "code" else "hellinger"
        cluster = cluster_labels(np.asarray(label_counts), float(self.eps), distance)
        loss = jnp.full(ctx.num_clients, np.log(max(label_counts.shape[1], 2)), jnp.float32)
        return HACCSState(jnp.asarray(cluster, jnp.int32), loss)

    def weights(self, state: HACCSState, ctx: Context) -> Float[Array, "N"]:
        """Returns `θ` of each cluster, 0 for one without available clients; there are at most `N` clusters."""
        assert ctx.timing is not None
        count = self.sizes(state, ctx)
        zero, some = jnp.zeros(ctx.num_clients), jnp.maximum(count, 1)
        seconds = zero.at[state.cluster].add(jnp.where(ctx.available, ctx.timing.total, 0.0)) / some
        loss = zero.at[state.cluster].add(jnp.where(ctx.available, state.loss**2, 0.0)) / some
        longest = jnp.maximum(seconds.max(), jnp.finfo(seconds.dtype).tiny)
        total = jnp.maximum(loss.sum(), jnp.finfo(loss.dtype).tiny)
        theta = self.rho * (1 - seconds / longest) + (1 - self.rho) * loss / total
        return jnp.where(count > 0, jnp.maximum(theta, LEAST), 0.0)

    def sizes(self, state: HACCSState, ctx: Context) -> Int[Array, "N"]:
        """Returns how many clients of each cluster are available."""
        return jnp.zeros(ctx.num_clients, jnp.int32).at[state.cluster].add(ctx.available.astype(jnp.int32))

    def select(self, key: PRNGKey, state: HACCSState, ctx: Context) -> Cohort:
        """Returns the fastest clients of each cluster."""
        assert ctx.timing is not None
        key_rest, key_tie = jax.random.split(key)
        theta, size = self.weights(state, ctx), self.sizes(state, ctx)
        wanted = round_down(ctx.m * theta / jnp.maximum(theta.sum(), LEAST))
        quota = jnp.minimum(wanted, size)

        def draw(i, quota):
            log_weight = jnp.where(quota < size, jnp.log(jnp.maximum(theta, LEAST)), -jnp.inf)
            one = draw_categorical(jax.random.fold_in(key_rest, i), log_weight)
            left = (quota.sum() < ctx.m) & (quota < size).any()
            return quota.at[one].add(jnp.where(left, 1, 0))

        quota = jax.lax.fori_loop(0, ctx.m, draw, quota)
        return top_stratified(key_tie, state.cluster, quota, -ctx.timing.total, ctx.available, ctx.m)

    def observe(
        self, key: PRNGKey, state: HACCSState, ctx: Context, cohort: Cohort, *, training_loss: Float[Array, "m"]
    ) -> HACCSState:
        """Returns the losses, updated for the members that returned; others count with the mean of all."""
        return state._replace(loss=learn_values(state.loss, cohort, training_loss))


LEAST = 1e-9
"""Weight of a cluster that is slowest and has no loss; it is drawn last."""
