"""HiCS-FL: clusters clients by the change of the output layer's bias, and favours clusters with balanced labels."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import cohort_of, draw_left, top_m
from fedjax_sel.client_selection._ward import (
    build_ward_tree,
    cut_to_count,
    measure_dissimilarity,
    number_clusters,
    pairwise_distances,
)
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.signals.output_update import find_output_layer
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey

__all__ = ["HiCSFL"]


class HiCSFLState(NamedTuple):
    """What `HiCSFL` carries from round to round.

    Attributes:
      change: of the output layer's bias (or weights, by class) when each client last trained; 0 before.
      seen: which clients were selected.
    """

    change: Float[Array, "N C"]
    seen: Bool[Array, "N"]


class HiCSFL(ClientSelector):
    """For each slot, draws a cluster with probability `∝ exp(γ_t H̄)` and a client in it in proportion to its examples.

    A client is represented by `Δb_i`, the change of the output layer's bias when it last trained. The entropy of its
    label distribution is estimated by `Ĥ_i = H(softmax(Δb_i / T))` in nats. Ward's method makes as many clusters as
    there are slots, with distances `arccos(Δb_i, Δb_j) + λ |Ĥ_i - Ĥ_j|` between clients (the angle counts as 0 if
    either change is 0). A client that never returned an update gets the mean `Ĥ` of the others. `H̄` is the mean of `Ĥ`
    over a cluster and `γ_t = γ₀ (1 - t/T)`, so clients with balanced labels come first, and clusters become equally
    likely towards the end. Members are distinct: if a drawn client is a member already, cluster and client are drawn
    again, so a cluster is drawn less often the more of its examples are in the cohort.

    In the first `⌈N/m⌉` rounds, cohorts are random unseen clients; in the last of these rounds, other clients fill the
    remaining slots, which the source leaves empty. The server reads `Δb_i` off the updates that it receives, so it
    costs the clients nothing.

    The authors' code uses the mean change of the weights into each class (`signature="weights"`), describes a client by
    its row of the distance matrix (`ward_on="rows"`), and draws uniformly among the clients left in a cluster, whose
    probability does not change until it is empty (`in_cluster="uniform"`). It also takes the angle between the changes
    of the layer's weights and biases together, warms up in the order of the clients' numbers, falls back to clustered
    sampling if the variance of `Ĥ` is 0.1 or more, and takes `⌊N/m⌋` rounds to warm up; none of this is done here.

    Attributes:
      temperature: `T` of the softmax, at least 1e-30; the source uses 0.0025 for Fashion-MNIST, 0.0015 elsewhere.
      entropy_weight: `λ`.
      gamma: `γ₀`; the source uses 4, and 2 for Mini-ImageNet.
      clusters: number of clusters; None: `m`.
      signature: `"bias"` or `"weights"`.
      ward_on: `"distances"` or `"rows"`.
      in_cluster: `"size"` or `"uniform"`.
      layer: path of the output layer, if its name does not identify it (`signals.OutputUpdate`).

    Source: Chen and Vikalo, "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated
    Learning", 2024, https://arxiv.org/abs/2310.00198, Algorithm 1, equations (7), (9) and (10), section A.1.2 for the
    numbers; code: https://github.com/CityChan/HiCS-FL.

    >>> HiCSFL().signals().after
    {'output_update': OutputUpdate(part='bias', layer=None)}
    """

    needs_classes: ClassVar[bool] = True

    temperature: Scalar = param(default=0.0025, low=1e-30)
    entropy_weight: Scalar = param(default=10.0, low=0)
    gamma: Scalar = param(default=4.0, low=0)
    clusters: int | None = static(default=None, low=1)
    signature: str = static(default="bias", choices=["bias", "weights"])
    ward_on: str = static(default="distances", choices=["distances", "rows"])
    in_cluster: str = static(default="size", choices=["size", "uniform"])
    layer: str | None = static(default=None)

    uses_rounds: ClassVar[bool] = True  # `gamma` falls over the run

    def signals(self) -> Signals:
        """Returns the change of the output layer in each update."""
        return Signals(after=[signals.OutputUpdate(self.signature, self.layer)])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> HiCSFLState:
        """Returns changes of 0, and no client seen.

        Raises:
          ValueError: the output layer is not found, is personal, or does not have a bias for each class, or there are
            more clusters than clients.
        """
        n = ctx.num_clients
        if self.clusters is not None and self.clusters > n:
            raise ValueError(f"hics_fl: clusters is {self.clusters}, but there are N = {n} clients; it must be 1 to N")
        bias = find_output_layer(host.variables, self.layer)["bias"]
        shared, _ = host.task.split_personal(host.variables)
        if not any(bias is leaf for leaf in jax.tree.leaves(shared)):
            raise ValueError(
                "hics_fl: the output layer is a personal part, so that no update tells its change; task.personal must "
                "leave it out"
            )
        width = bias.shape[0]
        if width != host.data.classes:
            raise ValueError(
                f"hics_fl: the bias of layer {self.layer!r} has {width} numbers, but there are {host.data.classes} "
                "classes; set layer to the path of the output layer"
            )
        return HiCSFLState(jnp.zeros((n, width)), jnp.zeros(n, bool))

    def describe(self, change: Float[Array, "N C"]) -> tuple[Float[Array, "N"], Float[Array, "N N"]]:
        """Returns each client's estimated entropy in nats, and the distances between clients.

        A client that never returned an update gets the mean entropy of the others, since a change of 0 would stand for
        perfectly balanced labels.
        """
        log_p = jax.nn.log_softmax(change / self.temperature)
        entropy = -(jnp.exp(log_p) * log_p).sum(1)
        known = (change != 0).any(1)
        mean = jnp.where(known, entropy, 0.0).sum() / jnp.maximum(known.sum(), 1)
        entropy = jnp.where(known, entropy, mean)
        apart = jnp.abs(entropy[:, None] - entropy[None, :])
        return entropy, measure_dissimilarity(change, "cosine") + self.entropy_weight * apart

    def select(self, key: PRNGKey, state: HiCSFLState, ctx: Context) -> Cohort:
        """Returns unseen clients in the first rounds, then clients drawn by cluster."""
        key_new, key_draw = jax.random.split(key)
        rounds = -(-ctx.num_clients // ctx.m)
        return jax.lax.cond(
            ctx.round < rounds,
            lambda: top_m(key_new, jnp.where(state.seen, 0.0, 1.0), ctx.available, ctx.m),
            lambda: self.draw_by_cluster(key_draw, state, ctx),
        )

    def draw_by_cluster(self, key: PRNGKey, state: HiCSFLState, ctx: Context) -> Cohort:
        """Returns `m` clients, each from a cluster drawn by its mean entropy."""
        n = ctx.num_clients
        entropy, distance = self.describe(state.change)
        tree = build_ward_tree(pairwise_distances(distance) if self.ward_on == "rows" else distance)
        cluster = number_clusters(cut_to_count(tree, self.clusters or ctx.m))
        members = jnp.zeros(n).at[cluster].add(1.0)
        mean = jnp.zeros(n).at[cluster].add(entropy) / jnp.maximum(members, 1.0)
        gamma = self.gamma * (1 - ctx.round / ctx.rounds)
        size = ctx.num_examples.astype(jnp.float32) if self.in_cluster == "size" else jnp.ones(n)

        def step(k, carry):
            left, client = carry
            counted = ctx.available if self.in_cluster == "size" else left  # Alg. 1: those drawn stay in their cluster
            total = jnp.zeros(n).at[cluster].add(jnp.where(counted, size, 0.0))[cluster]
            log_chance = gamma * mean[cluster] + jnp.log(size) - jnp.log(jnp.where(total > 0, total, 1.0))
            drawn, left = draw_left(jax.random.fold_in(key, k), log_chance, left)
            return left, client.at[k].set(drawn)

        _, client = jax.lax.fori_loop(0, ctx.m, step, (ctx.available, jnp.full(ctx.m, PAD_CLIENT)))
        return cohort_of(client, client >= 0)

    def observe(
        self, key: PRNGKey, state: HiCSFLState, ctx: Context, cohort: Cohort, *, output_update: Float[Array, "m C"]
    ) -> HiCSFLState:
        """Returns the state with the changes of the members that returned."""
        return HiCSFLState(
            change=state.change.at[cohort.returned].set(output_update, mode="drop"),
            seen=state.seen.at[cohort.selected].set(True, mode="drop"),
        )
