"""FedGS: cohorts of clients that are far apart, with all clients selected equally often."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel import signals
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.protocols import ClientSelector, Host, Signals
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import Cohort, Context, PRNGKey

__all__ = ["FedGS"]

NOISE = 1e-5
"""Scale of the noise added to a client's worth, which breaks ties at random."""


class FedGSState(NamedTuple):
    """What `FedGS` carries from round to round.

    Attributes:
      distance: between clients, in [0, 1].
      count: how often each was selected.
    """

    distance: Float[Array, "N N"]
    count: Int[Array, "N"]


class FedGS(ClientSelector):
    """The cohort that maximises `α / (m (m - 1)) sᵀ H s - z · s`: distances between members less past selections.

    `s` is 1 for members and 0 for others; `z_i = (2 (v_i - v̄ - m / N) + 1) / (N - 1)`, where `v` counts each client's
    selections. `H` holds the lengths of shortest paths, divided by the longest, in a graph with an edge of length
    `exp(-u_ij² / σ)` between clients whose similarity `u_ij` is above ε, and 1 where there is no path. `u` is the
    cosine of two label distributions, scaled to [0, 1] over all pairs. In `m / N`, `N` counts available clients only.
    With `α = 0`, the clients selected least often are
    selected.

    The source hands the problem to a solver; here a greedy cohort is improved by exchanging one member at a time, the
    best exchange first, until none helps (at most `10 m` times). Ties are broken by random numbers up to 1e-5 in each
    client's term, which also decide where members' mean distances differ by less than `5e-6 m / α`. Each client sends
    its label counts, `C` numbers, once, before the first round.

    Attributes:
      alpha: α, the weight of distances relative to past selections.
      epsilon, sigma: ε and σ of the graph.
      scale: smallest similarity in the scaling: `"pairs"`, that of all pairs; `"code"`, that of all pairs and 0, as in
        the authors' code.

    Source: Wang et al., "FedGS: Federated Graph-based Sampling with Arbitrary Client Availability", 2023,
    https://arxiv.org/abs/2211.13975; code: https://github.com/WwZzz/FedGS, whose oracle graph this is.

    >>> list(FedGS().signals().upfront)
    ['label_counts']
    """

    ordered: ClassVar[bool] = True
    alpha: Scalar = param(default=0.1, low=0)
    epsilon: Scalar = param(default=0.01, low=0, below=1)
    sigma: Scalar = param(default=0.1, above=0)
    scale: str = static(default="pairs", choices=["pairs", "code"])

    def signals(self) -> Signals:
        """Returns the clients' label counts, once."""
        return Signals(upfront=[signals.LabelCounts()])

    def init(self, key: PRNGKey, ctx: Context, host: Host, *, label_counts: Int[Array, "N C"]) -> FedGSState:
        """Returns the distances in the graph of clients, and selection counts of 0."""
        apart = graph_distances(label_counts, self.epsilon, self.sigma, with_zero=self.scale == "code")
        return FedGSState(apart, jnp.zeros(ctx.num_clients, jnp.int32))

    def select(self, key: PRNGKey, state: FedGSState, ctx: Context) -> Cohort:
        """Returns the cohort."""
        n, m = ctx.num_clients, jnp.minimum(ctx.m, ctx.available.sum())
        reachable = jnp.maximum(ctx.available.sum(), 1)
        z = (2 * (state.count - state.count.mean() - m / reachable) + 1) / max(n - 1, 1)
        worth = -z + NOISE * jax.random.uniform(key, (n,))
        pair = 2 * self.alpha / jnp.maximum(m * (m - 1), 1) * state.distance
        member = exchange(pair, worth, ctx.available, ctx.m)
        _, client = jax.lax.top_k(member.astype(jnp.float32), ctx.m)
        return cohort_of(client, member[client])

    def observe(self, key: PRNGKey, state: FedGSState, ctx: Context, cohort: Cohort) -> FedGSState:
        """Returns the selection counts, which include members that returned nothing."""
        return state._replace(count=state.count.at[cohort.selected].add(1, mode="drop"))


def graph_distances(
    counts: Int[Array, "N C"], epsilon: Scalar, sigma: Scalar, *, with_zero: bool = False
) -> Float[Array, "N N"]:
    """Returns the shortest paths between clients, divided by the longest; 1 where there is none, 0 on the diagonal.

    Args:
      counts: examples of each client and class.
      epsilon: similarity above which there is an edge.
      sigma: `σ` in the length of an edge.
      with_zero: whether 0 counts among the similarities when they are scaled.
    """
    n, counts = counts.shape[0], counts.astype(jnp.float32)  # squares of integers overflow
    p = counts / jnp.maximum(jnp.sqrt((counts**2).sum(1, keepdims=True)), 1e-12)
    similar, oneself = p @ p.T, jnp.eye(n, dtype=bool)
    low = jnp.min(jnp.where(oneself, 0.0 if with_zero else jnp.inf, similar))
    high = jnp.max(jnp.where(oneself, -jnp.inf, similar))
    scaled = jnp.where(high > low, (similar - low) / jnp.where(high > low, high - low, 1.0), 1.0)
    length = jnp.where(scaled > epsilon, jnp.exp(-(scaled**2) / sigma), jnp.inf)
    length = jnp.where(oneself, 0.0, length)

    def through(k, path):  # Floyd-Warshall
        return jnp.minimum(path, path[:, k][:, None] + path[k][None, :])

    path = jax.lax.fori_loop(0, n, through, length)
    longest = jnp.max(jnp.where(jnp.isfinite(path), path, 0.0))
    return jnp.where(jnp.isfinite(path), path / jnp.where(longest > 0, longest, 1.0), 1.0)


def exchange(
    pair: Float[Array, "N N"], worth: Float[Array, "N"], available: Bool[Array, "N"], m: int
) -> Bool[Array, "N"]:
    """Returns a cohort that no exchange of one member for another client improves, or that after `10 m` exchanges.

    Maximises the sum of the members' worths plus the sum of `pair` over the pairs of members.

    Args:
      pair: symmetric, 0 on the diagonal.
      worth: of each client.
      available: which clients can be members.
      m: number of members; all available clients if they are fewer.
    """
    member = jnp.zeros(worth.shape, bool)

    def add(_, member):
        gain = worth + pair @ member.astype(jnp.float32)
        gain = jnp.where(available & ~member, gain, -jnp.inf)
        best = jnp.argmax(gain)
        return member.at[best].set(member[best] | (gain[best] > -jnp.inf))

    def improve(carry):
        member, _, tries = carry
        linked = worth + pair @ member.astype(jnp.float32)  # what a member contributes, or another client would
        gain = linked[None, :] - pair - linked[:, None]  # of client j for member i
        gain = jnp.where(member[:, None] & (available & ~member)[None, :], gain, -jnp.inf)
        best = jnp.argmax(gain)
        out, into = best // worth.shape[0], best % worth.shape[0]
        better = gain[out, into] > LEAST_GAIN
        changed = member.at[out].set(False).at[into].set(True)
        return jnp.where(better, changed, member), better, tries + 1

    begin = (jax.lax.fori_loop(0, m, add, member), jnp.array(True), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(lambda carry: carry[1] & (carry[2] < 10 * m), improve, begin)[0]


LEAST_GAIN = 1e-6
"""Smallest gain that is not rounding."""
