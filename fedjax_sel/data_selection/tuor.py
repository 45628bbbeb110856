"""The examples that a benchmark model, trained on a few clean examples, finds as easy as clean ones."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fedjax_sel.data.federated import Examples
from fedjax_sel.data.host_array import HostArray
from fedjax_sel.data_selection._ops import places
from fedjax_sel.protocols import Context, DataSelector, Host, Prepared, Upfront
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import BYTES, PRNGKey, Variables

__all__ = ["Tuor"]

AT_ONCE = 500
"""Examples per forward pass of the benchmark model."""


class Tuor(DataSelector):
    """The examples whose loss on a benchmark model is at most `λ`, chosen once for all clients, before round 0.

    The server trains the benchmark model on a part of its validation examples, which are assumed to be clean, in
    `passes` turns of the experiment's local training. `λ` is the threshold that brings the distribution of the clients'
    losses up to `λ` closest to that of the other validation examples' losses, in Kolmogorov-Smirnov distance. Every
    client receives the model, runs it once on all its examples, and reports their losses; a client without relevant
    examples does not train.

    Attributes:
      held_out: fraction of the validation examples that the benchmark model is not trained on, in (0, 1).
      passes: turns of local training.
      candidates: thresholds tried, at equally spaced ranks of the clients' losses.

    Source: Tuor et al., "Overcoming Noisy and Irrelevant Data in Federated Learning", 2021 (ICPR),
    https://arxiv.org/abs/2001.08300, section III; read second-hand. The paper trains the benchmark model until it
    converges.

    >>> Tuor(passes=5)
    Tuor(held_out=0.5, passes=5, candidates=100)
    """

    held_out: Scalar = param(default=0.5, above=0, below=1)
    passes: int = static(default=20, low=1)
    candidates: int = static(default=100, low=1)

    def prepare(self, key: PRNGKey, ctx: Context, host: Host) -> Prepared:
        """Returns every client's relevant examples.

        Raises:
          ValueError: the server has fewer than two validation examples.
        """
        data, task = jax.tree.map(jnp.asarray, host.data), host.task
        clean = len(data.validation_y)
        if clean < 2:
            raise ValueError(
                f"tuor trains a benchmark model on the server's validation examples, but there are {clean}; "
                "load the data with a validation share"
            )
        key_split, key_train = jax.random.split(key)
        everyone = jnp.ones(clean, bool)
        rank = places(everyone, jax.random.uniform(key_split, (clean,)))
        trained_on = rank >= jnp.clip(jnp.round(self.held_out * clean), 1, clean - 1)
        model = self.train(key_train, host, trained_on)
        held_out = measure_losses(host, model, data.validation_x, data.validation_y)
        losses = measure_losses(host, model, data.x, data.y)
        first, count, order = (np.asarray(a) for a in (host.data.offset, host.data.num_examples, host.data.order))
        place = np.arange(data.longest)[None, :]
        index = order[np.minimum(first[:, None] + place, len(order) - 1)]
        valid = place < count[:, None]
        threshold = find_threshold(losses[index[valid]], held_out, ~trained_on, self.candidates)
        size = np.asarray(data.num_examples, np.float64)
        down = float(BYTES * (task.parameters(data.like) + 1))  # the benchmark model is whole, with personal parts
        cost = Upfront(size * task.flops(data.like), down, BYTES * size)
        return Prepared(clients=jnp.asarray(valid) & (losses[index] <= threshold), cost=cost)

    def train(self, key: PRNGKey, host: Host, trained_on: Bool[Array, "b"]) -> Variables:
        """Returns the benchmark model, trained from the initial global model."""
        data, trainer, count = jax.tree.map(jnp.asarray, host.data), host.trainer, trained_on.shape[0]
        index = jnp.arange(count)
        server = replace(data, x=data.validation_x, y=data.validation_y)
        plan = trainer.plan(trained_on.sum()[None], count, jnp.int32(0), jnp.int32(1))
        plan = jax.tree.map(lambda leaf: leaf[0], plan)

        def turn(i, model):
            own = jax.random.fold_in(key, i)
            examples = Examples(server, index, trained_on)
            update = trainer.train(own, host.task, model, examples, plan, num_steps=plan.steps)
            return jax.tree.map(jnp.add, model, update.delta)

        return jax.lax.fori_loop(0, self.passes, turn, host.variables)

    def select(self, key: PRNGKey, state: Bool[Array, "L"], valid: Bool[Array, "L"]) -> Bool[Array, "L"]:
        """Returns 1 for the relevant examples."""
        return valid & state


def measure_losses(host: Host, model: Variables, x: Array | HostArray, y: Array | HostArray) -> Float[Array, "n"]:
    """Returns the loss of each example."""

    def measure(i):
        return host.task.example_losses(host.task.logits(model, x[i][None]), y[i][None])[0]

    return jax.lax.map(measure, jnp.arange(len(x)), batch_size=AT_ONCE)


def find_threshold(
    losses: Float[Array, "n"], clean: Float[Array, "b"], counts: Bool[Array, "b"], candidates: int
) -> Float[Array, ""]:
    """Returns the threshold up to which `losses` are distributed most like the clean losses that count.

    Args:
      losses: of the clients' examples.
      clean: of the clean examples.
      counts: which of the clean losses count.
      candidates: how many of `losses`, at equally spaced ranks, are tried.
    """
    losses, clean = (jnp.where(jnp.isnan(a), jnp.inf, a) for a in (losses, clean))  # as large as can be
    rising, held_out = jnp.sort(losses), jnp.sort(jnp.where(counts, clean, jnp.inf))
    rank = -(-np.arange(1, candidates + 1) * len(losses) // candidates) - 1  # in NumPy, as the product may exceed int32
    at = jnp.concatenate([rising, jnp.where(jnp.isfinite(held_out), held_out, rising[-1])])
    below = jnp.searchsorted(rising, at, side="right")
    wanted = jnp.minimum(jnp.searchsorted(held_out, at, side="right") / counts.sum(), 1.0)

    def measure(threshold):
        kept = jnp.searchsorted(rising, threshold, side="right")
        return jnp.abs(jnp.minimum(below / kept, 1.0) - wanted).max()

    tried = rising[rank]
    return tried[jnp.argmin(jax.lax.map(measure, tried))]
