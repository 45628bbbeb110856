"""Minibatch SGD on one client's examples: local training as federated averaging has it."""

from __future__ import annotations

import math
from collections.abc import Callable

import optax
from jaxtyping import Array, Int

from fedjax_sel.data.federated import Examples
from fedjax_sel.local_training._loop import Loop
from fedjax_sel.local_training._schedule import Constant, Cosine, Exponential, Steps
from fedjax_sel.protocols import LocalTrainer
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.task import Task
from fedjax_sel.types import Plan, PRNGKey, Update, Variables

__all__ = ["SGD"]


class SGD(LocalTrainer):
    """Epochs of minibatch SGD from the global model; the momentum starts at zero every round.

    Each epoch is a fresh shuffle of the client's examples, cut into batches; the last one may be smaller, and its loss
    is the mean over the examples it has.

    Attributes:
      learning_rate: base rate.
      batch_size: `B`; None: all of the client's examples at once.
      epochs: passes over the client's examples; None: 1 where `steps` is None.
      steps: local steps, the same for every client whatever its size; a client with few examples passes over them more
        often. None: as many as the epochs take.
      momentum: of heavy-ball SGD; None: no buffer.
      weight_decay: factor of the decay added to the gradient; None: none.
      epoch_decay: what each epoch but the round's first multiplies the learning rate by; None: nothing.
      schedule: factor on the learning rate by round.

    Raises:
      ValueError: a number out of its range, or both `epochs` and `steps`.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1, ClientUpdate.

    >>> import jax.numpy as jnp
    >>> SGD(0.5, batch_size=10, epochs=2).plan(jnp.array([25, 7]), longest=25, round=0, rounds=100).steps
    Array([6, 2], dtype=int32)
    """

    learning_rate: Scalar = param(default=0.1, low=0, below=math.inf)
    batch_size: int | None = static(default=10, low=1)
    epochs: int | None = static(default=None, low=1)
    steps: int | None = static(default=None, low=1)
    momentum: Scalar | None = param(default=None, low=0, below=1)
    weight_decay: Scalar | None = param(default=None, low=0, below=math.inf)
    epoch_decay: Scalar | None = param(default=None, low=0, below=math.inf)
    schedule: Constant | Cosine | Exponential | Steps = Constant()

    def __check_init__(self) -> None:
        """Refuses both `epochs` and `steps`."""
        self._loop.check("sgd")

    def plan(
        self,
        num_examples: Int[Array, "*m"],
        longest: int,
        round: Int[Array, ""] | int,
        rounds: Int[Array, ""] | int,
        max_steps: Int[Array, "*m"] | None = None,
    ) -> Plan:
        """Steps, examples and rates of clients with so many examples."""
        return self._loop.plan(num_examples, longest, round, rounds, max_steps, self.momentum)

    def train(
        self,
        key: PRNGKey,
        task: Task,
        params: Variables,
        examples: Examples,
        plan: Plan,
        *,
        num_steps: Int[Array, ""] | int,
        transform: Callable[[Variables, Variables], Variables] | None = None,
    ) -> Update:
        """The update of one client."""
        return self._loop.train(
            self.optimizer, key, task, params, examples, plan, num_steps=num_steps, transform=transform
        )

    def optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """Returns the optax transformation of a step at this rate."""
        descent = optax.sgd(rate, self.momentum)
        if self.weight_decay is None:
            return descent
        return optax.chain(optax.add_decayed_weights(self.weight_decay), descent)

    def step_examples(self, longest: int) -> int:
        """Returns the examples of a batch."""
        return self._loop.size(longest)

    @property
    def _loop(self) -> Loop:
        rate, decay = self.learning_rate, self.epoch_decay
        return Loop(rate, self.batch_size, self.epochs, self.steps, decay, self.schedule)
