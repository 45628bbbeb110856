"""Learning-rate schedules over rounds as traced values: factors on the base rate, which optax's closures would fix."""

from __future__ import annotations

import math
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.pytree import Pytree, Scalar, is_whole, param, show, static
from fedjax_sel.types import Undeclared


class Constant(Pytree):
    """A factor of 1 in every round.

    >>> Constant()(jnp.int32(7), jnp.int32(100))
    Array(1., dtype=float32)
    """

    uses_rounds: ClassVar[bool] = False

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""] | Undeclared) -> Float[Array, ""]:
        """Returns the factor in round `round` of `rounds`."""
        return jnp.ones(())


class Exponential(Pytree):
    """`rate ^ round`.

    Attributes:
      rate: factor from one round to the next.

    >>> Exponential(0.5)(jnp.int32(3), jnp.int32(100))
    Array(0.125, dtype=float32)
    """

    uses_rounds: ClassVar[bool] = False

    rate: Scalar = param(default=0.99, low=0, below=math.inf)

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""] | Undeclared) -> Float[Array, ""]:
        """Returns the factor in round `round` of `rounds`."""
        return jnp.asarray(self.rate, jnp.float32) ** round


class Steps(Pytree):
    """`factor ^ k`, where `k` is how many of the rounds in `at` have been reached.

    Attributes:
      at: rounds, counted from 0.
      factor: factor on the rate at each of them.

    >>> Steps(at=(10, 20), factor=0.5)(jnp.int32(20), jnp.int32(100))
    Array(0.25, dtype=float32)
    """

    uses_rounds: ClassVar[bool] = False

    at: tuple[int, ...] = static(default=())
    factor: Scalar = param(default=0.5, low=0, below=math.inf)

    def __check_init__(self) -> None:
        """Raises `ValueError` unless `at` is a tuple of rounds."""
        if not isinstance(self.at, tuple) or not all(is_whole(t) and t >= 0 for t in self.at):
            raise ValueError(f"steps: at is {show(self.at)}; it must be a tuple of rounds, as in (150, 225)")

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""] | Undeclared) -> Float[Array, ""]:
        """Returns the factor in round `round` of `rounds`."""
        reached = sum((jnp.asarray(round >= t, jnp.float32) for t in self.at), jnp.zeros(()))
        return jnp.asarray(self.factor, jnp.float32) ** reached


class Cosine(Pytree):
    """Decays from 1 to `end` along half a cosine over the run.

    Attributes:
      end: factor that the round after the last would have.

    >>> Cosine(end=0.5)(jnp.int32(50), jnp.int32(100))
    Array(0.75, dtype=float32, weak_type=True)
    """

    uses_rounds: ClassVar[bool] = True

    end: Scalar = param(default=0.0, low=0, below=math.inf)

    def __call__(self, round: Int[Array, ""], rounds: Int[Array, ""]) -> Float[Array, ""]:
        """Returns the factor in round `round` of `rounds`."""
        return self.end + (1 - self.end) * 0.5 * (1 + jnp.cos(jnp.pi * round / rounds))
