"""Local training with any optax optimiser."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.catalog import check_name
from fedjax_sel.local_training._minibatch import MinibatchTrainer
from fedjax_sel.mistakes import check_accepts
from fedjax_sel.pytree import Range, Scalar, param, show, static

__all__ = ["Optax"]

OPTIMIZERS = (
    *("sgd", "adam", "adamw", "adagrad", "rmsprop", "yogi", "lion"),
    *("adabelief", "adadelta", "adamax", "adamaxw", "adan", "amsgrad", "fromage", "lamb", "lars", "nadam", "nadamw"),
    *("novograd", "radam", "sm3", "sign_sgd"),
)
"""Names of the optax optimisers that can be built from numbers alone."""

AVERAGED = ("momentum", "b1", "b2", "b3", "decay")
"""Hyperparameters that weigh the past in a running mean, if an optimiser has them; in [0, 1)."""


def keeps_rate(build: Callable[[float], optax.GradientTransformation]) -> bool:
    """Returns whether the state of an optimiser depends on its learning rate, as with `optax.inject_hyperparams`."""
    one, other = (jax.tree.leaves(build(rate).init(jnp.zeros(1))) for rate in (1.0, 0.5))
    return any(bool((a != b).any()) for a, b in zip(one, other, strict=True))


class Optax(MinibatchTrainer):
    """Epochs of minibatch steps with an optax optimiser, whose state is reset every round.

    Batches are those of `sgd` with the same settings. The optimiser is built from numbers inside the compiled program,
    so they may be swept over.

    Attributes:
      learning_rate, batch_size, epochs, steps, epoch_decay, schedule, augment: as in `MinibatchTrainer`.
      optimizer: a name (`"adam"`, `"adamw"`, `"adagrad"`, `"rmsprop"`, `"yogi"`, `"lion"`, `"sgd"`, ...), or a function
        that makes an `optax.GradientTransformation` from the numbers below, such as `optax.adam`.
      hyperparams: the optimiser's other numbers, by argument name; None: its defaults.

    Raises:
      ValueError: the optimiser does not exist or does not take a number, a number is out of range, or both `epochs` and
        `steps` are given.

    Source: Wang et al., "Local Adaptivity in Federated Learning: Convergence and Consistency", 2021,
    https://arxiv.org/abs/2106.02305, Algorithm 1, whose clients restart their adaptive optimisers every round.

    >>> import jax.numpy as jnp
    >>> trainer = Optax(0.01, optimizer="adam", hyperparams={"b1": 0.8})
    >>> trainer.plan(jnp.array([25]), longest=25, round=0, rounds=100).steps
    Array([3], dtype=int32)
    """

    learning_rate: Scalar = param(default=0.001, low=0, below=math.inf)
    optimizer: str | Callable[..., optax.GradientTransformation] = static(default="adam")
    hyperparams: Mapping[str, Scalar] | None = None

    def __check_init__(self) -> None:
        """Raises `ValueError` for what the optimiser does not take, and for both `epochs` and `steps`."""
        super().__check_init__()
        if isinstance(self.optimizer, str):
            check_name("optax: optimizer", self.optimizer, OPTIMIZERS)
        elif not callable(self.optimizer):
            raise ValueError(
                f"optax: optimizer is {show(self.optimizer)}; "
                "it must be a name, or a function of numbers: optimizer=optax.adam, learning_rate=1e-3, not "
                "optax.adam(1e-3)"
            )
        if not isinstance(self.hyperparams, Mapping | None):
            raise ValueError(
                f"optax: hyperparams is {show(self.hyperparams)}; it must be a mapping from names to numbers, or None"
            )
        accepted = inspect.signature(self._factory).parameters
        for name, value in (self.hyperparams or {}).items():
            if name == "learning_rate":
                raise ValueError("optax: learning_rate is a field of its own; give it there, not in hyperparams")
            if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
                check_name("number of optax:", name, accepted)
            if name in accepted and isinstance(accepted[name].default, bool):
                raise ValueError(
                    f"optax: {name} is true or false, not a number: give the optimizer with it, as in "
                    f"optimizer=functools.partial(optax.sgd, {name}=True)"
                )
            bounds = Range(0, below=1) if name in AVERAGED else Range()
            bounds.check(f"optax: hyperparams.{name}", value)
        check_accepts("optax: optimizer", self._factory, (), ("learning_rate", *(self.hyperparams or {})))
        if self.epoch_decay is not None and keeps_rate(self.build_optimizer):
            raise ValueError(
                f"optax: {show(self.optimizer)} keeps the learning rate in its state, where epoch_decay cannot change "
                "it; give an optimizer without (optax.sgd, not optax.inject_hyperparams(optax.sgd)), or no epoch_decay"
            )

    def build_optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """Returns the optax transformation for a step at this learning rate."""
        return self._factory(**{**(self.hyperparams or {}), "learning_rate": rate})

    @property
    def heavy_ball(self) -> Scalar | None:
        """The momentum of SGD; other optimisers have none."""
        return (self.hyperparams or {}).get("momentum") if self.linear else None

    @property
    def linear(self) -> bool:
        """Returns true for SGD, with or without momentum; a class derived from this one says so itself."""
        return type(self) is Optax and self._factory is optax.sgd

    @property
    def _factory(self) -> Callable[..., optax.GradientTransformation]:
        return getattr(optax, self.optimizer) if isinstance(self.optimizer, str) else self.optimizer
