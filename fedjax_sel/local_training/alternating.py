"""Trains the personal parts first, then the shared ones: FedRep's local training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util
from jaxtyping import Array, Int

from fedjax_sel.data.federated import Examples
from fedjax_sel.local_training.optax import Optax
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.protocols import LocalTrainer
from fedjax_sel.pytree import static
from fedjax_sel.task import Task
from fedjax_sel.task.freezing import merge_trees
from fedjax_sel.types import Plan, PRNGKey, Undeclared, Update, Variables

__all__ = ["Alternating"]


class Alternating(LocalTrainer):
    """Trains the client's personal parts with the shared ones fixed, then the shared ones with the personal ones fixed.

    The model's personal parts are `Task.personal`. Corrections act on the shared parts. A fixed part is in evaluation
    mode (no dropout). Both phases are billed as full passes, although fixed parts have no gradient.

    Attributes:
      trainer: trains both parts; its epochs or steps are those of the shared parts.
      personal_epochs: passes over the examples that train the personal parts.

    Source: Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", 2021,
    https://arxiv.org/abs/2102.07078, Algorithm 1 (FedRep).

    >>> import jax.numpy as jnp
    >>> trainer = Alternating(SGD(0.1, batch_size=5), personal_epochs=2)
    >>> trainer.plan(jnp.array([20]), longest=20, round=0, rounds=1).steps  # 2 x 4, then 4
    Array([12], dtype=int32)
    """

    trainer: SGD | Optax = SGD()
    personal_epochs: int = static(default=1, low=1)

    def step_examples(self, longest: int) -> int:
        """Returns the examples of a full batch."""
        return self.trainer.step_examples(longest)

    def most_examples(self, longest: int) -> int:
        """Returns the most examples that a client passes in both phases."""
        return self.first.most_examples(longest) + self.trainer.most_examples(longest)

    @property
    def linear(self) -> bool:
        """Returns whether the shared parts' update is a sum of gradients; derived classes say so themselves."""
        return type(self) is Alternating and self.trainer.linear

    @property
    def uses_rounds(self) -> bool:
        """Returns whether the trainer uses the number of rounds."""
        return self.trainer.uses_rounds

    @property
    def first(self) -> SGD | Optax:
        """Returns the trainer of the personal parts."""
        return self.trainer.replace(epochs=self.personal_epochs, steps=None)

    def plan(
        self,
        num_examples: Int[Array, "*m"],
        longest: int,
        round: Int[Array, ""] | int,
        rounds: Int[Array, ""] | int | Undeclared,
        max_steps: Int[Array, "*m"] | None = None,
    ) -> Plan:
        """Returns the steps and examples of both phases, and the rates of the second."""
        first = self.first.plan(num_examples, longest, round, rounds, max_steps)
        rest = None if max_steps is None else max_steps - first.steps
        second = self.trainer.plan(num_examples, longest, round, rounds, rest)
        both = {name: getattr(first, name) + getattr(second, name) for name in ("steps", "examples_seen")}
        return replace(second, **both)

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
    ) -> Update:
        """Returns the update of one client.

        Raises:
          ValueError: the task has no personal parts.
        """
        if not task.personal:
            raise ValueError(
                "alternating: the task has no personal parts to alternate with; name some, as in "
                "task.replace(personal=('head',)) or model.personal=[head], or use sgd"
            )
        key_first, key_second = jax.random.split(key)
        count, longest = examples.mask.sum(), examples.longest
        whole = self.first.plan(jnp.asarray([count, longest]), longest, 0, 1).steps
        rest = self.trainer.plan(jnp.asarray([longest]), longest, 0, 1).steps[0]
        first_plan = replace(plan, steps=jnp.minimum(plan.steps, whole[0]))
        second_plan = replace(plan, steps=plan.steps - first_plan.steps)
        shared, personal = task.split_personal(variables)
        head = fix(task, shared, personal)
        # Alg. 1: h_i by τ gradient steps, then φ by one
        one = self.first.train(
            key_first, head, personal, examples, first_plan, num_steps=jnp.minimum(num_steps, whole[1])
        )
        moved = jax.tree.map(jnp.add, personal, one.delta)

        def transform_shared(gradient: Variables, variables: Variables) -> Variables:
            assert transform is not None
            trained, _ = task.split(moved)
            whole = merge_trees(gradient, jax.tree.map(jnp.zeros_like, trained))
            return task.split_personal(transform(whole, merge_trees(variables, trained)))[0]

        two = self.trainer.train(
            key_second,
            fix(task, moved, shared),
            shared,
            examples,
            second_plan,
            num_steps=jnp.minimum(num_steps, rest),
            transform=None if transform is None else transform_shared,
        )
        return join_updates(one, two, plan)


def fix(task: Task, part: Variables, rest: Variables) -> Task:
    """Returns the task with a part of the variables frozen at its values.

    A module is frozen as a whole, which puts it in evaluation mode, if nothing in it is among `rest`, which is trained.
    """
    paths, others = ([path[1:] for path in traverse_util.flatten_dict(one)] for one in (part, rest))
    shared = {path[:k] for path in others for k in range(len(path))}
    names = tuple(sorted({"/".join(path if path[:-1] in shared else path[:-1]) for path in paths}))
    values = merge_trees(task.frozen.variables, part)
    return task.replace(personal=(), frozen=task.frozen.replace(names=(*task.frozen.names, *names), variables=values))


def join_updates(one: Any, two: Any, plan: Plan) -> Update:
    """Returns the update of two phases; its losses are means over the examples of both."""
    seen = one.examples_seen + two.examples_seen

    def mean(first: Any, second: Any) -> Any:
        return (first * one.examples_seen + second * two.examples_seen) / jnp.maximum(seen, 1)

    return Update(
        delta=merge_trees(one.delta, two.delta),
        num_examples=one.num_examples,
        steps=plan.steps,
        examples_seen=seen,
        loss=mean(one.loss, two.loss),
        mean_sq_loss=mean(one.mean_sq_loss, two.mean_sq_loss),
    )
