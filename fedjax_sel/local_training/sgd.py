"""The only training loop: minibatch SGD on one client's rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.local_training._schedule import Constant, Cosine, Exponential, Steps
from fedjax_sel.protocols import LocalTrainer
from fedjax_sel.pytree import Scalar, static
from fedjax_sel.task import Task
from fedjax_sel.types import Plan, PRNGKey, Update, Variables

__all__ = ["SGD"]


class SGD(LocalTrainer):
    """Epochs of minibatch SGD from the global model; the momentum starts at zero every round.

    Each epoch is a fresh shuffle of the client's rows, cut into batches; the last one may be smaller, and its loss is
    the mean over the rows it has.

    Attributes:
      learning_rate: base rate.
      batch_size: `B`; None: all of the client's rows at once.
      epochs: passes over the client's rows, where `steps` is None.
      steps: local steps, the same for every client whatever its size.
      momentum: of heavy-ball SGD; None: no buffer.
      weight_decay: factor of the decay added to the gradient; None: none.
      epoch_decay: what each epoch but the round's first multiplies the learning rate by; None: nothing.
      schedule: factor on the learning rate by round.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1, ClientUpdate.
    """

    learning_rate: Scalar = 0.1
    batch_size: int | None = static(default=10)
    epochs: int = static(default=1)
    steps: int | None = static(default=None)
    momentum: Scalar | None = None
    weight_decay: Scalar | None = None
    epoch_decay: Scalar | None = None
    schedule: Constant | Cosine | Exponential | Steps = Constant()

    def __check_init__(self) -> None:
        """Refuse what cannot train."""
        for name in ("batch_size", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"sgd: {name} is {value!r}; it must be a whole number, at least 1")
        for name in ("learning_rate", "momentum", "weight_decay", "epoch_decay"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ValueError(f"sgd: {name} is {value!r}; it must be a finite number, at least 0")

    def plan(self, num_examples, longest, round, rounds, max_steps=None):
        steps = (self.epochs or 1) * self._batches(num_examples, longest) if self.steps is None else self.steps
        steps = jnp.where(num_examples > 0, steps, 0)
        steps = steps if max_steps is None else jnp.minimum(steps, max_steps)
        size, batches = min(self.batch_size or longest, longest), self._batches(num_examples, longest)
        seen = steps // batches * num_examples + jnp.minimum(steps % batches * size, num_examples)
        factor = self.schedule(round, rounds)
        b = batches[..., None]
        epoch = jnp.arange((self.epochs or 1) if self.steps is None else self.steps).reshape(
            (1,) * jnp.ndim(num_examples) + (-1,)
        )
        of_epoch = jnp.clip(steps[..., None] - epoch * b, 0, b)
        way = jnp.sum(of_epoch * self._rate(epoch, factor), axis=-1)
        return Plan(steps, seen, way, jnp.broadcast_to(factor, steps.shape))

    def train(self, key, task, params, examples, plan, *, num_steps, transform=None):
        received, keep, data, index, correct = params, examples.mask, examples.data, examples.index, transform
        factor, steps, bound = plan.rate_factor, plan.steps, num_steps
        key_order, key_dropout = jax.random.split(key)
        rows, longest = keep.sum(), keep.shape[0]
        size = min(self.batch_size or longest, longest)
        batches = self._batches(rows, longest)
        order = shuffles(key_order, keep, (self.epochs or 1) if self.steps is None else self.steps)

        def mean_loss(trained, statistics, batch, key):
            losses, statistics = task.training_losses(task.join(trained, statistics), batch, key)
            sums = jnp.stack([losses.sum(), (losses**2).sum()])
            return losses.sum() / jnp.maximum(batch.mask.sum(), 1), (sums, statistics)

        def step(s, carry):
            trained, statistics, moments, total, seen = carry
            place = (s % batches) * size + jnp.arange(size)
            batch = data.batch(index[order.at[s // batches, place].get(mode="clip")], (place < rows) & (s < steps))
            key_step = jax.random.fold_in(key_dropout, s)
            gradient, (sums, moved) = jax.grad(mean_loss, has_aux=True)(trained, statistics, batch, key_step)
            gradient = gradient if correct is None else correct(gradient, trained)
            optimiser = self._optimiser(self._rate(s // batches, factor))
            change, moved_moments = optimiser.update(gradient, moments, trained)
            new, old = (optax.apply_updates(trained, change), moved_moments), (trained, moments)
            trained, moments = jax.tree.map(lambda a, b: jnp.where(s < steps, a, b), new, old)
            return trained, moved, moments, total + sums, seen + batch.mask.sum()

        trained, statistics = task.split(received)
        start = trained, statistics, self._optimiser(0.0).init(trained), jnp.zeros(2), jnp.zeros((), jnp.int32)
        trained, statistics, _, total, seen = jax.lax.fori_loop(0, bound, step, start)
        delta = jax.tree.map(jnp.subtract, task.join(trained, statistics), received)
        loss, square = total / jnp.maximum(seen, 1)
        return Update(delta, rows, steps, seen, loss, square)

    def _rate(self, epoch: Int[Array, "*e"], factor: Scalar) -> Float[Array, "*e"]:
        rate = jnp.broadcast_to(jnp.asarray(self.learning_rate * factor, jnp.float32), epoch.shape)
        return rate if self.epoch_decay is None else rate * jnp.asarray(self.epoch_decay, jnp.float32) ** epoch

    def _optimiser(self, rate: Scalar) -> optax.GradientTransformation:
        optimiser = optax.sgd(rate, self.momentum)
        if self.weight_decay is None:
            return optimiser
        return optax.chain(optax.add_decayed_weights(self.weight_decay), optimiser)

    def _batches(self, rows: Int[Array, "*m"], longest: int) -> Int[Array, "*m"]:
        size = min(self.batch_size or longest, longest)
        return jnp.maximum(-(-rows // size), 1)


def shuffles(key: PRNGKey, keep: Bool[Array, "L"], times: int) -> Int[Array, "times L"]:
    """`times` random orders of the places where `keep` holds; the others come last.

    Place `j` draws the same numbers whatever `L` is, so padding changes nothing.
    """
    noise = jax.vmap(lambda k: jax.random.bits(k, keep.shape, jnp.uint32))(jax.random.split(key, times))
    place, digits = jnp.arange(keep.shape[0], dtype=jnp.uint32), (keep.shape[0] - 1).bit_length()
    if digits > MOST_DIGITS:
        return jnp.argsort(jnp.where(keep[None], noise >> NOISE, jnp.uint32(2**32 - 1)), axis=-1)
    # One number a place, its noise above its own digits: a CPU sorts these 3 to 7 times as fast as numbers with places.
    above = jnp.where(keep[None], noise >> max(NOISE, digits + 1), jnp.uint32(2 ** (31 - digits)))
    return (jax.lax.sort(above << digits | place[None]) & jnp.uint32(2**digits - 1)).astype(jnp.int32)


NOISE = 9
"""Bits of the 32 that decide no order: of what is left, two places of a client rarely share a value."""

MOST_DIGITS = 11
"""Binary digits of a place that leave enough for its noise: beyond 2048 rows, numbers and places are sorted apart."""
