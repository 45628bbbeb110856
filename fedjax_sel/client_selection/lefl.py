"""LEFL: stratified sampling over clusters of clients whose models predict public examples alike."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection._strata import divergences, draw_quotas, draw_strata, draw_stratified, quotas
from fedjax_sel.collectives import map_parts
from fedjax_sel.compiled import jit
from fedjax_sel.data.federated import Examples
from fedjax_sel.protocols import ClientSelector, Host, Upfront
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import BYTES, Cohort, Context, PRNGKey, Rows, Variables

if TYPE_CHECKING:
    from fedjax_sel.data.federated import FederatedData
    from fedjax_sel.protocols import LocalTrainer
    from fedjax_sel.task import Task

__all__ = ["LEFL"]

CALLS = 20
"""The most calls that the pre-phase is split into; on a mesh of a CPU's cores, XLA's memory grows during each call."""

FARTHEST = 1e15
"""The largest divergence, in nats or bits, beyond which KMeans would overflow."""


class LEFL(ClientSelector):
    """Cohorts stratified over clusters of clients whose models, once trained, predict public examples alike.

    Once, before the first round, each client trains for `epochs` from the initial model (its weights are discarded) and
    sends soft labels of the public examples. Client `i` is described by its row of
    `KL(p_i ‖ p_j) = mean_x Σ_c p_i log(p_i / p_j)`, and KMeans groups the clients into `clusters`. In every round, each
    cluster contributes its share of the cohort, drawn uniformly.

    `allocation="hamilton"` selects exactly `m` clients by largest remainder, at least one from each cluster (equal
    remainders, which rounding may tell apart, favour the same clusters in every round); with fewer slots than clusters,
    one from each of `m` clusters, drawn in proportion to their size (more from each if fewer have clients available).
    `"proportional"`, the text's "proportional number", also selects `m` clients, but rounds a cluster's share up or
    down at random, to 0 if it is small: every client is then selected equally often, which "at least one" does not
    ensure. `"code"` follows the authors' code: `max(1, round(fraction · size))` clients from each cluster, possibly
    more than `fraction · N` in all, so `m` must be at least that total. In the text, the pre-phase is part of the first
    round, and its weights are "sandwiched", which its code does not do.

    The federation needs public examples. The cost of the pre-phase is billed to the first round.

    Attributes:
      clusters: number of clusters; None: `⌈log₂ N⌉`.
      epochs: of the pre-phase.
      fraction: fraction of each cluster that is selected with `allocation="code"`; None: `m / N`.
      allocation: `"hamilton"`, `"proportional"` or `"code"`.
      kl_direction: `"paper"`, or `"code"` for the transpose, `KL(p_j ‖ p_i)`.
      log_base: of the divergence's logarithm, `"e"` or `"2"`; it scales all distances alike.

    Source: Abebe, Munoz and Jannesari, "LEFL: Low Entropy Client Sampling in Federated Learning", 2023,
    https://arxiv.org/abs/2312.17430, Algorithm 1; code: https://github.com/wmabebe/lefl.

    >>> LEFL().strata(100)  # ⌈log₂ 100⌉
    7
    """

    needs_classes: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    clusters: int | None = static(default=None, low=1)
    epochs: int = static(default=10, low=1)
    fraction: Scalar | None = param(default=None, above=0, high=1)
    allocation: str = static(default="hamilton", choices=["hamilton", "proportional", "code"])
    kl_direction: str = static(default="paper", choices=["paper", "code"])
    log_base: str = static(default="e", choices=["e", "2"])

    def strata(self, clients: int) -> int:
        """Returns the number of clusters for so many clients."""
        return max(1, math.ceil(math.log2(clients))) if self.clusters is None else self.clusters

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Int[Array, "N"]:
        """Returns the cluster of each client.

        Raises:
          ValueError: there are no public examples, fewer clients than clusters, or more members than slots.
        """
        k = self.check(ctx, host)
        log_p = self.soft_labels(key, ctx, host)  # Alg. 1, client side
        cluster = cluster_clients(self.distances(log_p), k)  # Alg. 1, server side, 1 and 2
        if self.allocation == "code":
            size = np.bincount(cluster, minlength=k)
            wanted = int(self.code_quotas(jnp.asarray(size), ctx).sum())
            if wanted > ctx.m:
                raise ValueError(
                    f"lefl: with allocation 'code' and {k} clusters of {', '.join(map(str, size))} clients a cohort "
                    f"has {wanted} members, but m is {ctx.m}; set m to {wanted} and fraction to {self.share(ctx):g}"
                )
        return jnp.asarray(cluster, jnp.int32)

    def state_shape(self, key: PRNGKey, ctx: Context, host: Host) -> jax.ShapeDtypeStruct:
        """Returns shape and type of the clusters without training; raises as `init`, except for members and slots."""
        self.check(ctx, host)
        return jax.ShapeDtypeStruct((ctx.num_clients,), jnp.int32)

    def check(self, ctx: Context, host: Host) -> int:
        """Returns the number of clusters.

        Raises:
          ValueError: there are no public examples, fewer clients than clusters, or `m N` is 2^31 or more.
        """
        k = self.strata(ctx.num_clients)
        if k > ctx.num_clients:
            raise ValueError(f"lefl: clusters is {k}, but there are N = {ctx.num_clients} clients; it must be 1 to N")
        if ctx.m * ctx.num_clients >= 2**31:
            raise ValueError(
                f"lefl: m = {ctx.m:,} slots times N = {ctx.num_clients:,} clients must be below 2^31, as its quotas "
                "are counted in whole numbers of 32 bits"
            )
        if host.data.public_x is None:
            raise ValueError(
                "lefl: there are no public examples to predict; give the federation some (public=examples, or in a "
                "configuration public: {name: ..., num_examples: 1000})"
            )
        return k

    def share(self, ctx: Context) -> Scalar:
        """Returns `fraction`, or `m / N`."""
        return ctx.m / ctx.num_clients if self.fraction is None else self.fraction

    def code_quotas(self, size: Int[Array, "k"], ctx: Context) -> Int[Array, "k"]:
        """Returns the quotas of the authors' code."""
        return jnp.where(size > 0, jnp.maximum(1, jnp.round(self.share(ctx) * size)), 0).astype(jnp.int32)

    def soft_labels(self, key: PRNGKey, ctx: Context, host: Host) -> Float[Array, "N M C"]:
        """Returns the log probabilities that each client's trained model gives to the public examples.

        A model that diverged (one of its log probabilities is not finite) counts as untrained, with a warning.
        """
        public = host.data.public_x
        assert public is not None
        log_p = self.run_pre_phase(predict_log_probs, public, jnp.arange(ctx.num_clients), key, ctx, host)
        finite = jnp.isfinite(log_p).all((1, 2))
        if finite.all():
            return log_p
        warnings.warn(
            f"lefl: the models of {int((~finite).sum())} of {ctx.num_clients} clients diverged in the pre-phase, and "
            "count as untrained; a lower learning rate may help",
            stacklevel=2,
        )
        untrained = jax.jit(predict_log_probs)(host.task, host.variables, public)
        return jnp.where(finite[:, None, None], log_p, untrained)

    def run_pre_phase(
        self,
        read: Callable[[Task, Variables, Any], Any],
        inputs: Any,
        clients: Int[Array, "k"],
        key: PRNGKey,
        ctx: Context,
        host: Host,
    ) -> Any:
        """Returns `read(task, variables, inputs)` of some clients' models after the pre-phase, with a leading `k`."""
        data = jax.tree.map(jnp.asarray, host.data)
        devices, trainer = host.devices[: len(clients)], self.pre_trainer(host)
        most = min(host.side_by_side or ctx.m, -(-len(clients) // max(1, len(devices))))
        found, at_once = [], most * max(1, len(devices))
        size = at_once * -(-len(clients) // (at_once * CALLS))
        for start in range(0, len(clients), size):
            some = clients[jnp.minimum(jnp.arange(start, start + size), len(clients) - 1)]
            on = (read, host.task, data, trainer, host.variables, inputs, some, key, ctx.rounds)
            found.append(jax.device_get(map_trained_models(*on, side_by_side=most, devices=devices)))
        return jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)[: len(clients)]), *found)

    def pre_trainer(self, host: Host) -> Any:
        """Returns the run's trainer with the pre-phase's epochs; raises `ValueError` if it does not count epochs."""
        trainer = host.trainer
        if not {"epochs", "steps"} <= vars(trainer).keys():
            raise ValueError(
                f"lefl: the pre-phase trains for {self.epochs} epochs, which {type(trainer).__name__} cannot be told; "
                "use a trainer with epochs and steps, as SGD()"
            )
        return replace(trainer, epochs=self.epochs, steps=None)

    def distances(self, log_p: Float[Array, "N M C"]) -> Float[np.ndarray, "N N"]:
        """Returns the divergences, one row per client."""
        kl = np.asarray(jax.jit(divergences)(log_p)) / math.log({"e": math.e, "2": 2.0}[self.log_base])
        kl = np.minimum(np.nan_to_num(kl, nan=FARTHEST), FARTHEST)
        return kl.T if self.kl_direction == "code" else kl

    def upfront(self, ctx: Context, host: Host) -> Upfront:
        """Returns the cost: model and public examples down, soft labels up, training, and a forward pass."""
        data, task = host.data, host.task
        public, flops = np.asarray(data.public_x), task.flops(data.like)
        size = public.nbytes if task.frozen.example_bytes is None else len(public) * task.frozen.example_bytes
        trainer = self.pre_trainer(host)
        plan = trainer.plan(jnp.asarray(data.num_examples), data.longest, jnp.int32(0), ctx.rounds)
        return Upfront(
            flops=np.asarray(plan.examples_seen, np.float64) * (1 + task.backward(data.like)) * flops
            + len(public) * flops,
            down=float(BYTES * task.shared_parameters(data.like)) + size,
            up=float(BYTES * len(public) * data.classes),
        )

    def select(self, key: PRNGKey, state: Int[Array, "N"], ctx: Context) -> Cohort:
        """Returns a share of the cohort from every cluster."""
        key_strata, key_clients = jax.random.split(key)
        k = self.strata(ctx.num_clients)
        size = jnp.zeros(k, jnp.int32).at[state].add(ctx.available.astype(jnp.int32))
        if self.allocation == "code":
            quota = self.code_quotas(size, ctx)
        elif self.allocation == "proportional":
            quota = draw_quotas(key_strata, size, ctx.m)
        else:
            if ctx.m < k:
                size *= draw_strata(key_strata, size, ctx.m)
            quota = quotas(size, ctx.m)
        return draw_stratified(key_clients, state, quota, ctx.available, ctx.m)  # Alg. 1, server side, last step


def predict_log_probs(task: Task, variables: Variables, examples: Rows) -> Float[Array, "M C"]:
    """Returns the log probabilities of the classes of examples."""
    return jax.nn.log_softmax(task.logits(variables, examples))


@jit(static_argnames=("read", "side_by_side", "devices"))
def map_trained_models(
    read: Callable[[Task, Variables, Any], Any],
    task: Task,
    data: FederatedData,
    trainer: LocalTrainer,
    variables: Variables,
    inputs: Any,
    clients: Int[Array, "k"],
    key: PRNGKey,
    rounds: Int[Array, ""],
    *,
    side_by_side: int,
    devices: tuple[Any, ...] = (),
) -> Any:
    """Returns `read(task, variables, inputs)` of each client's model after its training; compiled once for all seeds.

    Args:
      read: what to compute from each model.
      task, data, trainer: of the training.
      variables: from which each client starts.
      inputs: for `read`, one array or several.
      clients: which clients train.
      key: from which each client's own is derived.
      rounds: of the run, for the trainer's schedule.
      side_by_side: clients that train at once on a device.
      devices: those that share the clients; empty: the first one trains all.
    """

    def train_part(clients, task, data, trainer, variables, inputs, key, rounds):
        plan = trainer.plan(data.num_examples, data.longest, jnp.int32(0), rounds)

        def train(i):  # Alg. 1, client side
            examples, own = Examples(data, *data.examples_of(i)).fetch(), jax.tree.map(lambda leaf: leaf[i], plan)
            key_client = jax.random.fold_in(key, i)
            update = trainer.train(key_client, task, variables, examples, own, num_steps=plan.steps.max())  # step 2
            return read(task, jax.tree.map(jnp.add, variables, update.delta), inputs)  # step 3

        return jax.lax.map(train, clients, batch_size=side_by_side)

    return map_parts(train_part, clients, task, data, trainer, variables, inputs, key, rounds, devices=devices)


def cluster_clients(features: Float[np.ndarray, "N d"], k: int) -> Int[np.ndarray, "N"]:
    """Returns the cluster of each client, by KMeans with the seed of the authors' code."""
    from sklearn.cluster import KMeans  # late: the import takes a second, which other selectors save

    often: Any = 10  # scikit-learn annotates only its default, a string
    return KMeans(n_clusters=k, random_state=0, n_init=often).fit_predict(features)
