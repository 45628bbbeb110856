"""LEFL: stratified sampling over clusters of clients whose models see public rows alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from sklearn.cluster import KMeans

from fedjax_sel.catalog import check_name
from fedjax_sel.client_selection._ops import check_number
from fedjax_sel.client_selection._strata import divergences, one_each, quotas, stratified
from fedjax_sel.protocols import ClientSelector, Host, Upfront
from fedjax_sel.pytree import jit, static
from fedjax_sel.types import Cohort, Context, PRNGKey, Rows, Variables

if TYPE_CHECKING:
    from fedjax_sel.data.federated import FederatedData
    from fedjax_sel.protocols import Host, LocalTrainer
    from fedjax_sel.task import Task

__all__ = ["LEFL"]


class LEFL(ClientSelector):
    """Cohorts stratified over clusters of clients who, having trained the initial model, predict public rows alike.

    Before the first round, once: each client trains for `epochs` from the initial model (its weights are thrown away),
    and sends soft labels of the public rows. Client `i` is described by its row of
    `KL(p_i ‖ p_j) = mean_x Σ_c p_i log(p_i / p_j)`, and KMeans makes `clusters` of them. In every round each cluster
    gives its share of the cohort, drawn uniformly.

    `allocation="hamilton"` gives exactly `m` clients, by largest remainder and at least one of a cluster; with fewer
    slots than clusters, one of each of `m` clusters, drawn in proportion to their size. `"code"` is the authors' code:
    `max(1, round(rate · size))` of each cluster, in all perhaps more than `rate · N`, so that `m` must be at least what
    it comes to. The text's pre-phase is part of the first round; its weights are "sandwiched", which its code does not
    do.

    The federation needs public rows. What the pre-phase takes is on the bill of the first round.

    Attributes:
      clusters: how many; None: `⌈log₂ N⌉`.
      epochs: of the pre-phase.
      rate: share of each cluster with `allocation="code"`; None: `m / N`.
      allocation: `"hamilton"` or `"code"`.
      kl_direction: `"paper"`, or `"code"` for the transpose, `KL(p_j ‖ p_i)`.
      log_base: of the divergence's logarithm, `"e"` or `"2"`; it scales all distances alike.

    Source: Abebe, Munoz and Jannesari, "LEFL: Low Entropy Client Sampling in Federated Learning", 2023,
    https://arxiv.org/abs/2312.17430, Algorithm 1; code: https://github.com/wmabebe/lefl.
    """

    clusters: int | None = static(default=None)
    epochs: int = static(default=10)
    rate: float | None = static(default=None)
    allocation: str = static(default="hamilton")
    kl_direction: str = static(default="paper")
    log_base: str = static(default="e")

    def strata(self, clients: int) -> int:
        """How many clusters of so many clients."""
        return max(1, math.ceil(math.log2(clients))) if self.clusters is None else self.clusters

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Int[Array, "N"]:
        """The cluster of each client; `ValueError` without public rows, or for more clusters than clients."""
        check_name("lefl: allocation", self.allocation, ["hamilton", "code"])
        check_name("lefl: kl_direction", self.kl_direction, ["paper", "code"])
        check_name("lefl: log_base", self.log_base, ["e", "2"])
        check_number("lefl: epochs", self.epochs, 1)
        if self.rate is not None:
            check_number("lefl: rate", self.rate, 0, 1, above=True)
        k = self.strata(ctx.num_clients)
        if not 1 <= k <= ctx.num_clients:
            raise ValueError(f"lefl: clusters is {k}, but there are N = {ctx.num_clients} clients; it must be 1 to N")
        if host.data.public_x is None:
            raise ValueError(
                "lefl: there are no public rows to predict; give the federation some (public=rows, or in a "
                "configuration public: {name: ..., rows: 1000})"
            )
        cluster = clustered(self.distances(self.soft_labels(key, ctx, host)), k)
        if self.allocation == "code":
            size = np.bincount(cluster, minlength=k)
            wanted = int(self.by_rate(jnp.asarray(size), ctx).sum())
            if wanted > ctx.m:
                raise ValueError(
                    f"lefl: with allocation 'code' and {k} clusters of {', '.join(map(str, size))} clients a cohort "
                    f"has {wanted} members, but m is {ctx.m}; set m to {wanted} and rate to {self.share(ctx):g}"
                )
        return jnp.asarray(cluster, jnp.int32)

    def share(self, ctx: Context) -> float:
        """`rate`, or `m / N`."""
        return ctx.m / ctx.num_clients if self.rate is None else self.rate

    def by_rate(self, size: Int[Array, "k"], ctx: Context) -> Int[Array, "k"]:
        """The authors' code's quotas."""
        return jnp.where(size > 0, jnp.maximum(1, jnp.round(self.share(ctx) * size)), 0).astype(jnp.int32)

    def soft_labels(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N M C"]:
        """Log probabilities that each client's trained model gives to the public rows."""
        assert host.data.public_x is not None
        return self.after_pre_phase(predictions, host.data.public_x, jnp.arange(ctx.num_clients), key, ctx, host)

    def after_pre_phase(
        self,
        look: Callable[[Task, Variables, Any], Any],
        rows: Any,
        clients: Int[Array, "k"],
        key: PRNGKey,
        ctx: Context,
        host: Host,
    ) -> Any:
        """`look(task, variables, rows)` of each of some clients' models after the pre-phase, with a leading `k`."""
        data = jax.tree.map(jnp.asarray, host.data)
        trainer, side_by_side = self.pre_trainer(host), min(host.side_by_side or ctx.m, len(clients))
        return looked_at(
            look, host.task, data, trainer, host.variables, rows, clients, key, ctx.rounds, side_by_side=side_by_side
        )

    def pre_trainer(self, host: Host) -> Any:
        """The run's trainer, for the epochs of the pre-phase."""
        return replace(host.trainer, epochs=self.epochs, steps=None)

    def distances(self, log_p: Float[Array, "N M C"]) -> Float[np.ndarray, "N N"]:
        """The divergences, a row a client."""
        kl = np.asarray(jax.jit(divergences)(log_p)) / math.log({"e": math.e, "2": 2.0}[self.log_base])
        return kl.T if self.kl_direction == "code" else kl

    def upfront(self, ctx: Context, host: Host) -> Upfront:
        """Model and public rows down, soft labels up, `epochs` of training and a pass over the public rows."""
        data, task = host.data, host.task
        public, flops = np.asarray(data.public_x), task.flops(data.x)
        trainer = self.pre_trainer(host)
        size = jnp.asarray(data.num_examples)
        seen = trainer.examples_seen(size, trainer.local_steps(size, data.longest), data.longest)
        return Upfront(
            flops=np.asarray(seen, np.float64) * (1 + task.backward(data.x)) * flops + len(public) * flops,
            down=4.0 * task.parameters(data.x) + public.nbytes,
            up=4.0 * len(public) * data.classes,
        )

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context) -> Cohort:
        """A share of every cluster."""
        key_strata, key_clients = jax.random.split(key)
        k = self.strata(ctx.num_clients)
        size = jnp.zeros(k, jnp.int32).at[state].add(ctx.available.astype(jnp.int32))
        if self.allocation == "code":
            quota = self.by_rate(size, ctx)
        else:
            quota = quotas(size, ctx.m) if ctx.m >= k else one_each(key_strata, size, ctx.m)
        return stratified(key_clients, state, quota, ctx.available, ctx.m)


def predictions(task: Task, variables: Variables, rows: Rows) -> Float[Array, "M C"]:
    """Log probabilities of rows."""
    return jax.nn.log_softmax(task.logits(variables, rows))


@jit(static_argnames=("look", "side_by_side"))
def looked_at(
    look: Callable[[Task, Variables, Any], Any],
    task: Task,
    data: FederatedData,
    trainer: LocalTrainer,
    variables: Variables,
    rows: Any,
    clients: Int[Array, "k"],
    key: PRNGKey,
    rounds: Int[Array, ""],
    *,
    side_by_side: int,
) -> Any:
    """`look(task, variables, rows)` of each client's model after its training; compiled once for all seeds.

    Args:
      look: what is wanted of a model.
      task, data, trainer: of the training.
      variables: from which each client begins.
      rows: for `look`, one array or several.
      clients: who.
      key: from which each draws its own.
      rounds: of the run, for the trainer's schedule.
      side_by_side: clients that train at once.
    """
    steps = trainer.local_steps(data.num_examples, data.longest)
    factor = trainer.schedule(jnp.int32(0), rounds)

    def one(i):
        index, valid = data.examples_of(i)
        own = jax.random.fold_in(key, i)
        update = trainer.train(task, variables, data, index, valid, own, factor, steps[i], steps.max())
        return look(task, jax.tree.map(jnp.add, variables, update.delta), rows)

    return jax.lax.map(one, clients, batch_size=side_by_side)


def clustered(rows: Float[np.ndarray, "N d"], k: int) -> Int[np.ndarray, "N"]:
    """KMeans with the seed of the authors' code."""
    often: Any = 10  # scikit-learn annotates its default, a string, only
    return KMeans(n_clusters=k, random_state=0, n_init=often).fit_predict(rows)
