"""Minibatch training on one client's examples, with any optimiser."""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.arrays import choose, keep_types, take
from fedjax_sel.data.federated import Examples
from fedjax_sel.local_training._augment import CropFlip, check_images
from fedjax_sel.local_training._schedule import Constant, Cosine, Exponential, Steps
from fedjax_sel.local_training._shuffle import shuffle_epochs, shuffle_steps
from fedjax_sel.mistakes import is_built_in
from fedjax_sel.protocols import LocalTrainer
from fedjax_sel.pytree import Scalar, is_key, param, show, static, title
from fedjax_sel.task import Task
from fedjax_sel.types import Batch, Plan, PRNGKey, Undeclared, Update, Variables


class MinibatchTrainer(LocalTrainer):
    """Passes over a client's examples, each a new shuffle cut into batches, of which the last may be smaller.

    This is the base class of trainers that differ in what they do with a batch's gradient. A batch's loss is the mean
    over its examples. Only `build_optimizer` is abstract.

    Attributes:
      learning_rate: base rate.
      batch_size: `B`; None: all of the client's examples at once.
      epochs: passes over the client's examples; None: 1 if `steps` is None.
      steps: local steps, the same for every client whatever its size; a client with few examples passes over them more
        often. None: as many as the epochs need.
      epoch_decay: factor on the learning rate for each epoch of a round after its first; None: 1.
      schedule: factor on the learning rate in each round.
      augment: random augmentation of the examples of each batch; None: none. Not counted in FLOPs.

    Raises:
      ValueError: a number is out of range, or both `epochs` and `steps` are given.
    """

    learning_rate: Scalar = param(default=0.1, low=0, below=math.inf)
    batch_size: int | None = static(default=10, low=1)
    epochs: int | None = static(default=None, low=1)
    steps: int | None = static(default=None, low=1)
    epoch_decay: Scalar | None = param(default=None, low=0, below=math.inf)
    schedule: Constant | Cosine | Exponential | Steps = Constant()
    augment: CropFlip | None = None

    takes_offset = True

    def __check_init__(self) -> None:
        """Raises `ValueError` for both `epochs` and `steps`, or for something that is not a schedule."""
        if jax.tree_util.all_leaves([self.schedule]) or not callable(self.schedule):
            raise ValueError(
                f"{title(type(self))}: schedule is {show(self.schedule)}; it must be a schedule, as Cosine(), or a "
                "Pytree with a method __call__(self, round, rounds); with uses_rounds = False, its runs can be extended"
            )
        if self.augment is not None and (jax.tree_util.all_leaves([self.augment]) or not callable(self.augment)):
            raise ValueError(
                f"{title(type(self))}: augment is {show(self.augment)}; it must be CropFlip(), None, or a Pytree with "
                "a method __call__(self, key, x)"
            )
        if self.epochs is not None and self.steps is not None:
            raise ValueError(
                f"{title(type(self))}: epochs is {self.epochs} and steps is {self.steps}; "
                "give one of them, and None for the other"
            )

    @property
    def uses_rounds(self) -> bool:
        """Returns whether the schedule depends on how many rounds there are."""
        return getattr(self.schedule, "uses_rounds", True)

    @abstractmethod
    def build_optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """Returns the optax transformation for a step at this learning rate."""

    def batch_gradient(
        self, loss: Callable[..., Any], trained: Variables, statistics: Variables, batch: Batch, key: PRNGKey
    ) -> tuple[Variables, Any]:
        """Returns the gradient that a step follows, by default that of `loss`, and the auxiliary output of `loss`.

        Args:
          loss: function of `trained` and the other arguments that returns the batch's mean loss and an auxiliary
            output.
          trained: the trained variables.
          statistics: batch statistics of the model before the step.
          batch: the step's batch.
          key: the step's key.
        """
        return jax.grad(loss, has_aux=True)(trained, statistics, batch, key)

    @property
    def heavy_ball(self) -> Scalar | None:
        """The momentum by which each gradient enters the update more than once; None by default: there is none.

        A trainer that is `linear` and has momentum must say how much, or `plan` returns too small a `step_size_sum`.
        """
        return None

    def step_examples(self, longest: int) -> int:
        """Returns `B`, the examples of a full batch."""
        return min(self.batch_size or longest, longest)

    def plan(
        self,
        num_examples: Int[Array, "*m"],
        longest: int,
        round: Int[Array, ""] | int,
        rounds: Int[Array, ""] | int | Undeclared,
        max_steps: Int[Array, "*m"] | None = None,
    ) -> Plan:
        """Returns the steps, examples and rates of clients with `num_examples` examples."""
        num_examples = jnp.asarray(num_examples)
        size, batches = self.step_examples(longest), self.num_batches(num_examples, longest)
        steps = (self.epochs or 1) * batches if self.steps is None else self.steps
        steps = jnp.where(num_examples > 0, steps, 0)
        steps = steps if max_steps is None else jnp.minimum(steps, max_steps)
        passes = jax.lax.div(steps, batches)
        known: Any = rounds if isinstance(rounds, Undeclared) else jnp.asarray(rounds)
        if not (self.uses_rounds or is_built_in(type(self.schedule).__call__)):
            known = Undeclared(f"{type(self.schedule).__name__}.__call__")
        factor, momentum = self.schedule(jnp.asarray(round), known), self.heavy_ball
        rate_sum = self.step_size_sum(steps, batches, factor, None)
        return Plan(
            steps=steps,
            examples_seen=passes * num_examples + jnp.minimum(jax.lax.rem(steps, batches) * size, num_examples),
            step_size_sum=rate_sum if momentum is None else self.step_size_sum(steps, batches, factor, momentum),
            rate_factor=jnp.broadcast_to(factor, num_examples.shape),
            rate_sum=rate_sum,
        )

    def train(
        self,
        key: PRNGKey,
        task: Task,
        variables: Variables,
        examples: Examples,
        plan: Plan,
        *,
        num_steps: Int[Array, ""] | int,
        transform: Callable[[Variables, Variables], Variables] | None = None,
        offset: Variables | None = None,
    ) -> Update:
        """Returns the update of one client."""
        key_order, key_dropout = jax.random.split(key)
        num_examples, longest = examples.mask.sum(), examples.longest
        size, batches = self.step_examples(longest), self.num_batches(num_examples, longest)
        factor = 1.0 if plan.rate_factor is None else plan.rate_factor
        if self.steps is None:
            order, stride = shuffle_epochs(key_order, examples.mask, self.epochs or 1).reshape(-1), longest
        else:
            order = shuffle_steps(key_order, examples.mask, self.steps, size)
            stride = jnp.maximum(num_examples, 1)

        def mean_loss(trained, statistics, batch, key):
            losses, statistics = task.training_losses(task.join(trained, statistics), batch, key)
            sums = jnp.stack([losses.sum(), (losses**2).sum()])
            weighted = losses if batch.weight is None else losses * batch.weight
            return weighted.sum() / jnp.maximum(batch.mask.sum(), 1), (sums, statistics)

        def step(s, carry):
            trained, statistics, moments, total, seen = carry
            epoch, counts = jax.lax.div(s, batches), s < plan.steps
            place = jax.lax.rem(s, batches) * size + jnp.arange(size)
            slot = epoch * stride + jnp.minimum(place, jnp.maximum(num_examples, 1) - 1)  # padding: its last example
            batch = examples.batch(take(order, slot), (place < num_examples) & counts)
            key_step = jax.random.fold_in(key_dropout, s)
            if self.augment is not None:
                check_images(self.augment, task)
                key_step, key_augment = jax.random.split(key_step)
                batch = batch.replace(x=self.augment(key_augment, batch.x))
            found = self.batch_gradient(mean_loss, trained, statistics, batch, key_step)
            gradient, (sums, statistics) = check_gradient(self, found)
            gradient = gradient if transform is None else transform(gradient, trained)
            rate = self.rate(epoch, factor)
            change, moved_moments = check_optimizer(self, self.build_optimizer(rate)).update(gradient, moments, trained)
            if offset is not None:
                change = jax.tree.map(lambda moved, more: moved - rate * more, change, offset)
            new, old = (optax.apply_updates(trained, change), keep_types(moved_moments, moments)), (trained, moments)
            trained, moments = choose(counts, new, old)
            return trained, statistics, moments, total + sums, seen + batch.mask.sum()

        trained, statistics = task.split(variables)
        optimizer = check_optimizer(self, self.build_optimizer(self.rate(jnp.int32(0), factor)))
        moments = seed_noise(optimizer.init(trained), key_dropout)
        start = trained, statistics, moments, jnp.zeros(2), jnp.zeros((), jnp.int32)
        trained, statistics, _, total, seen = jax.lax.fori_loop(0, num_steps, step, start)
        delta = jax.tree.map(jnp.subtract, task.join(trained, statistics), variables)
        loss, mean_sq_loss = total / jnp.maximum(seen, 1)
        return Update(delta, num_examples, plan.steps, seen, loss, mean_sq_loss)

    def num_batches(self, num_examples: Int[Array, "*m"], longest: int) -> Int[Array, "*m"]:
        """Returns the batches per epoch of clients with `num_examples` examples, at least 1."""
        size = self.step_examples(longest)
        return jnp.maximum(jax.lax.div(num_examples + (size - 1), size), 1)

    def most_examples(self, longest: int) -> int:
        """Returns the most examples that a client with at most `longest` passes in a round, counting repetitions."""
        return (self.epochs or 1) * longest if self.steps is None else self.steps * self.step_examples(longest)

    def rate(self, epoch: Int[Array, "*e"], factor: Scalar) -> Float[Array, "*e"]:
        """Returns the learning rate of each epoch of a round with this factor."""
        rate = jnp.broadcast_to(jnp.asarray(self.learning_rate * factor, jnp.float32), epoch.shape)
        return rate if self.epoch_decay is None else rate * jnp.asarray(self.epoch_decay, jnp.float32) ** epoch

    def step_size_sum(
        self, steps: Int[Array, "*m"], batches: Int[Array, "*m"], factor: Scalar, momentum: Scalar | None
    ) -> Float[Array, "*m"]:
        """Returns the sum of the factors by which gradients enter the update in `steps` steps with this momentum."""
        most = (self.epochs or 1) if self.steps is None else self.steps
        epoch = jnp.arange(most).reshape((1,) * jnp.ndim(steps) + (-1,))
        steps, batches = steps[..., None], batches[..., None]
        begun = -(steps // -jnp.maximum(batches, 1))  # epochs past the last have no steps; their products overflow
        first, last = (jnp.minimum(steps, jnp.minimum(e, begun) * batches) for e in (epoch, epoch + 1))
        of_epoch = last - first if momentum is None else accumulate(last, momentum) - accumulate(first, momentum)
        return jnp.sum(of_epoch * self.rate(epoch, factor), axis=-1)


def seed_noise(state: Any, key: PRNGKey) -> Any:
    """Returns an optimiser's initial state with this client's keys, where it holds any, as that of `optax.add_noise`.

    An optimiser begins with a seed of its own, so that its noise would be the same for every client and round.

    Args:
      state: of the optimiser.
      key: key of the client and round; what is folded into it is larger than any number of a step.
    """

    def seed(path: tuple, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        if not isinstance(leaf, jax.Array):
            return leaf
        typed = is_key(leaf) and leaf.ndim == 0
        if not typed and not (leaf.dtype == jnp.uint32 and leaf.shape == (2,)):  # as keys were before types
            return leaf
        own = jax.random.fold_in(key, 2**31 + zlib.crc32(name.encode()) // 2)
        return jax.random.fold_in(leaf, jax.random.bits(own, (), jnp.uint32))

    return jax.tree_util.tree_map_with_path(seed, state)


def accumulate(steps: Int[Array, "*m"], momentum: Scalar) -> Float[Array, "*m"]:
    """Returns how far `steps` heavy-ball steps go with rate and gradients of 1: `Σ_{k=1}^τ (1 - ρ^k) / (1 - ρ)`.

    Source: Wang et al., 2020, https://arxiv.org/abs/2007.07481, section 4: `‖a_i‖₁` of local momentum.

    >>> accumulate(jnp.array([1, 2, 5]), 0.5), accumulate(jnp.array([5]), 1.0)
    (Array([1.    , 2.5   , 8.0625], dtype=float32), Array([15.], dtype=float32))
    """
    tau, rho = steps.astype(jnp.float32), jnp.asarray(momentum, jnp.float32)
    gap = 1 - rho
    near = jnp.abs(gap) * tau < NEAR_ONE
    apart = jnp.where(near, 1.0, gap)
    closed = (tau - rho * (1 - rho**tau) / apart) / apart
    # Σ_k (-gap)^k C(τ + 1, k + 2): the series of the closed form near ρ = 1, where that is 0 / 0.
    series = tau * (tau + 1) / 2
    series *= 1 - gap * (tau - 1) / 3 * (1 - gap * (tau - 2) / 4 * (1 - gap * (tau - 3) / 5))
    return jnp.where(near, series, closed)


NEAR_ONE = 0.1
"""`τ (1 - ρ)` below which the closed form of `accumulate` loses digits, and its series needs only a few terms."""


def check_optimizer(trainer: MinibatchTrainer, found: Any) -> optax.GradientTransformation:
    """Returns what a trainer's `build_optimizer` returned; raises `ValueError` if it is not an optimiser."""
    if not callable(getattr(found, "init", None)) or not callable(getattr(found, "update", None)):
        raise ValueError(
            f"{title(type(trainer))}.build_optimizer returned {show(found)}; it must return an optimiser of optax, as "
            "optax.sgd(rate)"
        )
    return found


def check_gradient(trainer: MinibatchTrainer, found: Any) -> tuple[Variables, Any]:
    """Returns what a trainer's `batch_gradient` returned; raises `ValueError` if it has another form."""
    pair = (tuple, list)
    if not isinstance(found, pair) or len(found) != 2 or not isinstance(found[1], pair) or len(found[1]) != 2:
        raise ValueError(
            f"{title(type(trainer))}.batch_gradient returned a {type(found).__name__} of another form; it must return "
            "(gradient, (sums, statistics))"
        )
    gradient, (sums, statistics) = found
    return gradient, (sums, statistics)
