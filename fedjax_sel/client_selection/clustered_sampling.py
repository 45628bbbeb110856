"""Clustered sampling: one client from each of `m` distributions, together unbiased."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import cohort_of, draw_categorical
from fedjax_sel.client_selection._ward import (
    build_ward_tree,
    cut_to_weight,
    measure_dissimilarity,
    number_clusters,
    pairwise_distances,
)
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import static
from fedjax_sel.signals.sketch import sketch_length
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["ClusteredSampling"]


class ClusteredSampling(ClientSelector):
    """One client from each of `m` distributions over the clients, whose sum gives client `i` the mass `m p_i`.

    `p_i = n_i / n` over the available clients. The mean of the drawn updates, each of weight `1/m`, is therefore
    unbiased, and its variance is at most that of `m` draws by `p`. Use the aggregation's `weighting: client` or
    `cohort`; a client drawn twice trains once with twice the weight. `by` sets how clients are grouped into
    distributions:

    - `by="size"` (Algorithm 1): in descending order of size, the clients fill the `m` distributions one after another.
    - `by="similarity"` (Algorithm 2): Ward's clustering of the clients' last updates, 0 before they train. The tree is
      cut into the largest clusters with `m Σ p ≤ 1`. Each of the `m` heaviest gets a distribution. These are filled up,
      the heaviest cluster's first, with the clients of the other clusters: the lightest cluster first, and in it the
      largest client first (in the authors' code, the lightest cluster's distribution is filled up first, and by clients
      in random order). A
      client with `m p_i > 1` fills one distribution and continues in the others. The server already has the updates, so
      this costs the clients nothing.
    - `by="oracle"` (a control): like `"size"`, but ordered by each client's most frequent class. If each class weighs
      `1/m`, each distribution holds one class. The clients send their label counts, once.

    Attributes:
      by: `"similarity"`, `"size"` or `"oracle"`.
      measure: of dissimilarity, `"cosine"` (the angle, 0 where a client never trained), `"l1"`, `"l2"`, or
        `"l2_squared"`, which the authors' code calls L2.
      ward_on: `"distances"` between clients; or `"rows"`, as in the authors' code, which describes a client by its row
        of the matrix of these distances and compares rows by Euclidean distance.
      sketch: length of the sketch that represents an update; None: all `P` numbers, and `N P` numbers of state.

    Source: Fraboni et al., "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in
    Federated Learning", 2021, https://arxiv.org/abs/2105.05883, Algorithms 1 and 2; code:
    https://github.com/Accenture/Labs-Federated-Learning, branch clustered_sampling.

    >>> size = jnp.array([40, 30, 20, 10])
    >>> [[f"{chance:.1f}" for chance in row] for row in fill_distributions(size, jnp.argsort(-size), 2)]
    [['0.8', '0.2', '0.0', '0.0'], ['0.0', '0.4', '0.4', '0.2']]
    """

    replacement: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    counts_examples: ClassVar[bool] = True

    by: str = static(default="similarity", choices=["similarity", "size", "oracle"])
    measure: str = static(default="cosine", choices=["cosine", "l1", "l2", "l2_squared"])
    ward_on: str = static(default="distances", choices=["distances", "rows"])
    sketch: int | None = static(default=None, low=1)

    def signals(self) -> Signals:
        """Returns the updates, the label counts, or nothing."""
        if self.by == "similarity":
            return Signals(after=[signals.Sketch(self.sketch)])
        return Signals(upfront=[signals.LabelCounts()] if self.by == "oracle" else [])

    def init(self, key: PRNGKey, ctx: Context, host: Host, **upfront: Any) -> Any:
        """Returns zero updates, Float[N k]; for the oracle, each client's most frequent class, Int[N]."""
        if self.by == "oracle":
            return jnp.argmax(upfront["label_counts"], axis=1).astype(jnp.int32)
        if self.by == "size":
            return ()
        return jnp.zeros((ctx.num_clients, sketch_length(host.task.split(host.variables)[0], self.sketch)))

    def distributions(self, state: Any, ctx: Context) -> Float[Array, "m N"]:
        """Returns each client's probability in each of the `m` draws; 0 everywhere if no client is available."""
        size = jnp.where(ctx.available, ctx.num_examples, 0)
        if self.by == "size":
            return fill_distributions(size, jnp.argsort(-size, stable=True), ctx.m)
        if self.by == "oracle":
            return fill_distributions(size, jnp.lexsort((-size, state)), ctx.m)
        distance = measure_dissimilarity(state, self.measure)
        tree = build_ward_tree(pairwise_distances(distance) if self.ward_on == "rows" else distance)
        # Examples are counted, not divided, so that a cluster of a tenth of them weighs a tenth, and not slightly more.
        most = (size.sum() // ctx.m).astype(jnp.float32)
        cluster = number_clusters(cut_to_weight(tree, size.astype(jnp.float32), most))
        return fill_around_clusters(size, cluster, ctx.m)

    def select(self, key: PRNGKey, state: Any, ctx: Context) -> Cohort:
        """Returns one client from each distribution."""
        chance = self.distributions(state, ctx)
        client = draw_categorical(key, jnp.log(chance))
        cohort = cohort_of(client, chance.sum(1) > 0)
        return cohort.replace(weight=cohort.weight / ctx.m)

    def observe(self, key: PRNGKey, state: Any, ctx: Context, cohort: Cohort, **values: Any) -> Any:
        """Returns the state with the updates of the members that returned."""
        if self.by != "similarity":
            return state
        return state.at[cohort.returned].set(values["sketch"], mode="drop")


def fill_distributions(size: Int[Array, "N"], order: Int[Array, "N"], m: int) -> Float[Array, "m N"]:
    """Returns `m` distributions of capacity `n`, filled by the clients one after another, each with mass `m n_i`.

    Args:
      size: examples of each client.
      order: in which the clients fill them.
      m: number of distributions.
    """
    room = jnp.full(m, size.sum())
    mass = overlap(m * size[order], m * size[order].astype(jnp.float32), room)
    return divide_rows(mass[:, jnp.argsort(order)])  # Alg. 1


def fill_around_clusters(size: Int[Array, "N"], cluster: Int[Array, "N"], m: int) -> Float[Array, "m N"]:
    """Returns the distributions of the `m` heaviest clusters, filled up with the clients of the others.

    Args:
      size: examples of each client.
      cluster: of each client, from 0; only the cluster of a single client may weigh more than a distribution holds.
      m: number of distributions.
    """
    n = size.shape[0]
    mass, far, capacity = m * size, m * size.astype(jnp.float32), size.sum()
    weight = jnp.zeros(n).at[cluster].add(far)
    heaviest = jnp.argsort(jnp.argsort(-weight, stable=True))  # rank of each cluster
    rank = heaviest[cluster]
    own = jnp.where(rank < m, jnp.where(size > capacity // m, capacity, mass), 0)  # at most a whole distribution
    kept = jnp.zeros((m, n), mass.dtype).at[rank, jnp.arange(n)].set(own, mode="drop")
    order = jnp.lexsort((-size, -rank))  # the lightest cluster first
    room = jnp.maximum(capacity - kept.sum(1), 0)
    rest = overlap((mass - own)[order], (far - own)[order], room)
    return divide_rows(kept + rest[:, jnp.argsort(order)])  # Alg. 2


def overlap(mass: Int[Array, "N"], far: Float[Array, "N"], room: Int[Array, "m"]) -> Int[Array, "m N"]:
    """Returns how much of each mass lies in each room, when masses and rooms are each laid end to end.

    Exact if each room holds less than 2^30: integers wrap around, so the difference of two ends is right where it is
    small, and float32 tells where it is.

    Args:
      mass: exact, up to multiples of 2^32.
      far: the same masses, rounded.
      room: what each room holds.
    """
    end_mass, end_room = jnp.cumsum(mass), jnp.cumsum(room)
    far_mass, far_room = jnp.cumsum(far), jnp.cumsum(room.astype(jnp.float32))

    def reach(end: Int[Array, "N"], far: Float[Array, "N"]) -> Int[Array, "m N"]:
        """Returns how far each room is filled when all masses up to each end are laid."""
        beyond = far[None, :] - (far_room - room)[:, None]
        filled = jnp.clip(end[None, :] - (end_room - room)[:, None], 0, room[:, None])
        return jnp.where(beyond < -(2.0**30), 0, jnp.where(beyond > 2.0**30, room[:, None], filled))

    return reach(end_mass, far_mass) - reach(end_mass - mass, far_mass - far)


def divide_rows(mass: Int[Array, "m N"]) -> Float[Array, "m N"]:
    """Returns each row divided by its sum."""
    total = mass.sum(1, keepdims=True)
    return mass / jnp.where(total > 0, total, 1.0)
