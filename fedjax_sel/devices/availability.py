"""Availability: which clients can be reached in which round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.mistakes import check_accepts
from fedjax_sel.protocols import Availability
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey

GOLDEN = (5**0.5 - 1) / 2


class Always(Availability):
    """Every client, in every round.

    >>> Always().available(jax.random.key(0), 0, 3)
    Array([ True,  True,  True], dtype=bool)
    """

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, num_clients: int) -> Bool[Array, "N"]:
        """Returns true for every client."""
        return jnp.ones(num_clients, bool)


class Bernoulli(Availability):
    """Each client in each round with probability `p`, independently.

    Attributes:
      p: one probability for all clients, or an array with one for each. In a configuration, `p` is one number; to give
        each client its own there, use `classes` with a list of `N` numbers.

    >>> Bernoulli(np.array([0.0, 1.0])).available(jax.random.key(0), 0, 2)
    Array([False,  True], dtype=bool)
    """

    p: Scalar | Float[Array | np.ndarray, "N"] = param(default=0.5, low=0, high=1)

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` unless there is one probability, or one for each client."""
        if np.shape(self.p) not in ((), (num_clients,)):
            raise ValueError(
                f"availability Bernoulli: p has shape {np.shape(self.p)}; it is one probability for all, or one for "
                f"each of the N = {num_clients} clients"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, num_clients: int) -> Bool[Array, "N"]:
        """Returns an independent draw for each client."""
        return jax.random.uniform(key, (num_clients,)) < self.p


class Classes(Availability):
    """Each client in each round with its class's probability, independently; classes are equal blocks of clients.

    Attributes:
      p: probability of each class; client `i` of `N` is in class `⌊i k / N⌋` of `k`.

    Source: the volatility of clients, in four classes of 25, of Huang et al., "Stochastic Client Selection for
    Federated Learning with Volatile Clients", 2022, https://arxiv.org/abs/2011.08756, section VI-B.

    >>> Classes((0.0, 1.0)).available(jax.random.key(0), 0, 4)
    Array([False, False,  True,  True], dtype=bool)
    """

    p: tuple[float, ...] = static(default=(0.1, 0.3, 0.6, 0.9))

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` unless there are probabilities, and no more of them than clients."""
        if not 1 <= len(self.p) <= num_clients or not all(0 <= one <= 1 for one in self.p):
            raise ValueError(
                f"availability Classes: p is {self.p}; it is one probability in [0, 1] for each of at most "
                f"N = {num_clients} classes"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, num_clients: int) -> Bool[Array, "N"]:
        """Returns an independent draw for each client."""
        group = np.arange(num_clients) * len(self.p) // num_clients
        return jax.random.uniform(key, (num_clients,)) < jnp.asarray(self.p, jnp.float32)[group]


class Diurnal(Availability):
    """Each client with a probability that rises and falls over its day.

    `p_i(t) = mean (1 + depth cos 2π(t / period - phase_i))`, cut to [0, 1].

    Attributes:
      period: rounds in a day.
      mean: mean probability over a whole day, before the cut; if anything is cut (`mean (1 + depth) > 1`), the actual
        mean is lower.
      depth: 0: constant over the day; 1: between 0 and `2 mean`.
      phase: when client `i`'s probability peaks, in days; None: spread evenly over the day, `i (√5 - 1)/2 mod 1`, so
        that the phase of a client does not depend on the number of clients.

    Source: phones that train at night, idle and charging: Bonawitz et al., "Towards Federated Learning at Scale", 2019,
    https://arxiv.org/abs/1902.01046; the cosine is ours.

    >>> Diurnal(period=2.0, phase=np.zeros(3)).available(jax.random.key(0), 1, 3)
    Array([False, False, False], dtype=bool)
    """

    period: Scalar = param(default=24.0, above=0)
    mean: Scalar = param(default=0.5, low=0, high=1)
    depth: Scalar = param(default=1.0, low=0, high=1)
    phase: Float[Array | np.ndarray, "N"] | None = None

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` unless every client has a finite phase."""
        if self.phase is not None and (
            np.shape(self.phase) != (num_clients,) or not np.isfinite(np.asarray(self.phase)).all()
        ):
            raise ValueError(
                f"availability Diurnal: phase has shape {np.shape(self.phase)}; one finite number (days) for each of "
                f"the N = {num_clients} clients is needed, or None"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, num_clients: int) -> Bool[Array, "N"]:
        """Returns an independent draw for each client, with its probability in this round."""
        phase = jnp.asarray(np.arange(num_clients) * GOLDEN % 1, jnp.float32) if self.phase is None else self.phase
        probability = self.mean * (1 + self.depth * jnp.cos(2 * jnp.pi * (round / self.period - phase)))
        return jax.random.uniform(key, (num_clients,)) < probability


class Function(Availability):
    """The clients that a function of the round chooses; they can arrive and leave by any rule.

    Attributes:
      present: `present(round, num_clients)` returns true or false for each client, in pure JAX.

    >>> Function(lambda round, num_clients: jnp.arange(num_clients) <= round).available(jax.random.key(0), 1, 3)
    Array([ True,  True, False], dtype=bool)
    """

    present: Callable[[Any, int], Any] = static()

    def __check_init__(self) -> None:
        """Raises `ValueError` unless `present` is a function."""
        check_accepts("availability Function: present", self.present, ("round", "num_clients"))

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` unless the function returns true or false for each client."""
        given = jax.eval_shape(lambda round: self.present(round, num_clients), jax.ShapeDtypeStruct((), jnp.int32))
        shape, kind = getattr(given, "shape", None), getattr(given, "dtype", type(given).__name__)
        if shape != (num_clients,) or kind != jnp.bool_:
            raise ValueError(
                f"availability Function: present returned {kind} of shape {shape}; it must be bool of shape "
                f"({num_clients},), one for each of the N = {num_clients} clients"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, num_clients: int) -> Bool[Array, "N"]:
        """Returns the function's value for this round."""
        return self.present(jnp.asarray(round, jnp.int32), num_clients)


class Trace(Availability):
    """The clients recorded in a table, which starts over after its last round.

    Attributes:
      present: which clients were available in which round.

    >>> Trace(np.array([[True, False], [False, True]])).available(jax.random.key(0), 3, 2)
    Array([False,  True], dtype=bool)
    """

    present: Bool[Array | np.ndarray, "T N"]

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` unless the table has at least one round, and one column for each client."""
        shape, kind = np.shape(self.present), np.asarray(self.present).dtype
        if len(shape) != 2 or shape[0] < 1 or shape[1] != num_clients or kind.kind != "b":
            raise ValueError(
                f"availability Trace: present is {kind} of shape {shape}; it must be bool, [rounds, N] with at least "
                f"one round and N = {num_clients} clients"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, num_clients: int) -> Bool[Array, "N"]:
        """Returns the table's row of this round."""
        return jnp.asarray(self.present)[round % len(self.present)]
