"""FedLECC: the clients of highest loss from the label clusters of highest mean loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._labels import cluster_labels
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection._strata import places_in_strata
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["FedLECC"]


class FedLECC(ClientSelector):
    """The `⌈m / J⌉` clients of highest loss from each of the `J` clusters of highest mean loss, ties at random.

    Clusters are made once, by OPTICS on the Hellinger distances between the clients' label distributions; a client
    outside all clusters gets its own. If clusters are too small to fill the cohort, those of the next highest mean loss
    follow; once all have contributed `⌈m / J⌉` clients, they contribute again. Each client sends its label counts, `C`
    numbers, once; in every round it receives the global model, passes all its examples through it and sends its loss.

    Attributes:
      clusters: `J`.
      eps: largest distance between neighbours; None: clusters are where reachability is steep (OPTICS's own rule, with
        scikit-learn's defaults), since within a given distance, most clients with Dirichlet classes have either no
        neighbour or nearly all other clients.

    Source: Jimenez-Gutierrez et al., "FedLECC: Cluster- and Loss-Guided Client Selection for Federated Learning under
    Non-IID Data", 2026, https://arxiv.org/abs/2603.08911. The number of clusters and how they are cut are ours.

    >>> list(FedLECC().signals().before)
    ['loss']
    """

    clusters: int = static(default=3, low=1)
    eps: Scalar | None = param(default=None, above=0)

    def signals(self) -> Signals:
        """Returns the clients' label counts, once, and their losses before training."""
        return Signals(upfront=[signals.LabelCounts()], before=[signals.Loss()])

    def init(self, key: PRNGKey, ctx: Context, host: Host, *, label_counts: Int[Array, "N C"]) -> Int[Array, "N"]:
        """Returns the cluster of each client."""
        eps = None if self.eps is None else float(self.eps)
        return jnp.asarray(cluster_labels(np.asarray(label_counts), eps, "hellinger"), jnp.int32)

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context, *, loss: Float[Array, "N"]) -> Cohort:
        """Returns clients of the clusters of highest loss, the highest first."""
        n, each = ctx.num_clients, -(-ctx.m // self.clusters)
        noise, tie = jax.random.uniform(key, (2, n))
        undecided = ctx.available & jnp.isnan(loss)
        told = ctx.available & ~undecided
        count = jnp.zeros(n).at[state].add(told.astype(jnp.float32))
        mean = jnp.zeros(n).at[state].add(jnp.where(told, loss, 0.0)) / jnp.maximum(count, 1)
        worse = jnp.argsort(jnp.lexsort((tie, jnp.where(count > 0, -mean, jnp.inf))))  # rank of each cluster
        place = places_in_strata(noise, jnp.where(told, -loss, jnp.inf), jnp.where(ctx.available, state, n))
        order = jnp.lexsort((place, worse[state], place // each, ~ctx.available))
        client = order[: ctx.m]
        return cohort_of(client, ctx.available[client], undecided.sum())
