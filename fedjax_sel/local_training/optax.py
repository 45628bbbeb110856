"""Local training by any optimiser of optax."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping

import optax
from jaxtyping import Array, Int

from fedjax_sel.catalog import check_name
from fedjax_sel.data.federated import Examples
from fedjax_sel.local_training._loop import Loop
from fedjax_sel.local_training._schedule import Constant, Cosine, Exponential, Steps
from fedjax_sel.protocols import LocalTrainer
from fedjax_sel.pytree import Range, Scalar, param, show, static
from fedjax_sel.task import Task
from fedjax_sel.types import Plan, PRNGKey, Update, Variables

__all__ = ["Optax"]

OPTIMIZERS = (
    *("sgd", "adam", "adamw", "adagrad", "rmsprop", "yogi", "lion"),
    *("adabelief", "adadelta", "adamax", "adamaxw", "adan", "amsgrad", "fromage", "lamb", "lars", "nadam", "nadamw"),
    *("novograd", "radam", "sm3", "sign_sgd"),
)
"""Names of optax's optimisers that are built from numbers alone."""

AVERAGED = ("momentum", "b1", "b2", "b3", "decay")
"""Numbers that weigh the past in a running mean, where an optimiser has them; in [0, 1)."""

LEARNING_RATE = 0.001
"""Where none is given."""


class Optax(LocalTrainer):
    """Epochs of minibatch steps by an optimiser of optax; its state starts anew every round.

    Batches are those of `sgd` with the same settings. The optimiser is built from numbers, inside the compiled program:
    they may be swept over.

    Attributes:
      optimizer: a name (`"adam"`, `"adamw"`, `"adagrad"`, `"rmsprop"`, `"yogi"`, `"lion"`, `"sgd"`, ...), or what makes
        an `optax.GradientTransformation` of the numbers below, such as `optax.adam`.
      learning_rate: base rate; None: that of `hyperparams`, or 0.001.
      hyperparams: the optimiser's other numbers, by the names of its arguments; None: it has its defaults.
      batch_size: `B`; None: all of the client's examples at once.
      epochs: passes over the client's examples; None: 1 where `steps` is None.
      steps: local steps, the same for every client whatever its size; None: as many as the epochs take.
      epoch_decay: what each epoch but the round's first multiplies the learning rate by; None: nothing.
      schedule: factor on the learning rate by round.

    Raises:
      ValueError: an optimiser that does not exist, a number that it does not take, a number out of its range, or both
        `epochs` and `steps`.

    Source: Wang et al., "Local Adaptivity in Federated Learning: Convergence and Consistency", 2021,
    https://arxiv.org/abs/2106.02305, Algorithm 1, whose clients restart their adaptive optimisers every round.

    >>> import jax.numpy as jnp
    >>> Optax("adam", hyperparams={"b1": 0.8}).plan(jnp.array([25]), longest=25, round=0, rounds=100).steps
    Array([3], dtype=int32)
    """

    optimizer: str | Callable[..., optax.GradientTransformation] = static(default="adam")
    learning_rate: Scalar | None = param(default=None, low=0, below=math.inf)
    hyperparams: Mapping[str, Scalar] | None = None
    batch_size: int | None = static(default=10, low=1)
    epochs: int | None = static(default=None, low=1)
    steps: int | None = static(default=None, low=1)
    epoch_decay: Scalar | None = param(default=None, low=0, below=math.inf)
    schedule: Constant | Cosine | Exponential | Steps = Constant()

    def __check_init__(self) -> None:
        """Refuses what the optimiser does not take, and both `epochs` and `steps`."""
        if isinstance(self.optimizer, str):
            check_name("optax: optimizer", self.optimizer, OPTIMIZERS)
        elif not callable(self.optimizer):
            raise ValueError(f"optax: optimizer is {self.optimizer!r}; it must be a name, or a function of numbers")
        if not isinstance(self.hyperparams, Mapping | None):
            raise ValueError(
                f"optax: hyperparams is {show(self.hyperparams)}; it must be a mapping from names to numbers, or None"
            )
        accepted = inspect.signature(self._factory).parameters
        for name, value in (self.hyperparams or {}).items():
            if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
                check_name("number of optax:", name, accepted)
            bounds = Range(0, below=1) if name in AVERAGED else Range(0 if name == "learning_rate" else None)
            bounds.check(f"optax: hyperparams.{name}", value)
        if self.learning_rate is not None and "learning_rate" in (self.hyperparams or {}):
            raise ValueError("optax: learning_rate is given twice, as a field and in hyperparams")
        self._loop.check("optax")

    def plan(
        self,
        num_examples: Int[Array, "*m"],
        longest: int,
        round: Int[Array, ""] | int,
        rounds: Int[Array, ""] | int,
        max_steps: Int[Array, "*m"] | None = None,
    ) -> Plan:
        """Steps, examples and rates of clients with so many examples."""
        momentum = (self.hyperparams or {}).get("momentum") if self.linear else None
        return self._loop.plan(num_examples, longest, round, rounds, max_steps, momentum)

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
            self.build_optimizer, key, task, params, examples, plan, num_steps=num_steps, transform=transform
        )

    def build_optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """The optax transformation of a step at this rate."""
        return self._factory(**{**(self.hyperparams or {}), "learning_rate": rate})

    @property
    def linear(self) -> bool:
        """Only for SGD, with or without momentum."""
        return self._factory is optax.sgd

    @property
    def _factory(self) -> Callable[..., optax.GradientTransformation]:
        return getattr(optax, self.optimizer) if isinstance(self.optimizer, str) else self.optimizer

    @property
    def _loop(self) -> Loop:
        given = (self.hyperparams or {}).get("learning_rate", LEARNING_RATE)
        rate = given if self.learning_rate is None else self.learning_rate
        return Loop(rate, self.batch_size, self.epochs, self.steps, self.epoch_decay, self.schedule)
