"""Who can be reached: a value that says so for every client in every round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.protocols import Availability
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PRNGKey

GOLDEN = (5**0.5 - 1) / 2


class Always(Availability):
    """Everybody, in every round."""

    def check(self, clients: int) -> None:
        """Nothing to check."""

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, clients: int) -> Bool[Array, "N"]:
        """Everybody."""
        return jnp.ones(clients, bool)


class Bernoulli(Availability):
    """Each client in each round with chance `p`, independently.

    Attributes:
      p: one for all, or one a client.
    """

    p: Scalar | Float[Array | np.ndarray, "N"] = 0.5

    def check(self, clients: int) -> None:
        """Chances are in [0, 1], one or `N`."""
        p = np.asarray(self.p)
        if p.shape not in ((), (clients,)) or not ((p >= 0) & (p <= 1)).all():
            raise ValueError(
                f"availability Bernoulli: p is {self.p}; it is a chance in [0, 1], one for all or one for each of the "
                f"N = {clients} clients"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, clients: int) -> Bool[Array, "N"]:
        """A coin a client."""
        return jax.random.uniform(key, (clients,)) < self.p


class Diurnal(Availability):
    """Each client with a chance that goes up and down with its day.

    `p_i(t) = mean (1 + depth cos 2π(t / period - phase_i))`, cut to [0, 1].

    Attributes:
      period: rounds in a day.
      mean: chance over a whole day.
      depth: 0: the same all day; 1: from 0 to `2 mean`.
      phase: when client `i`'s day is at its best, in days; None: spread evenly over the day, `i (√5 - 1)/2 mod 1`, so
        that the phase of a client does not depend on how many others there are.

    Source: that phones train at night, idle and charging, is in Bonawitz et al., "Towards Federated Learning at Scale",
    2019, https://arxiv.org/abs/1902.01046; the cosine is ours.
    """

    period: Scalar = 24.0
    mean: Scalar = 0.5
    depth: Scalar = 1.0
    phase: Float[Array | np.ndarray, "N"] | None = None

    def check(self, clients: int) -> None:
        """Numbers in their ranges, and a phase a client."""
        if not (float(self.period) > 0 and 0 <= float(self.mean) <= 1 and 0 <= float(self.depth) <= 1):
            raise ValueError(
                f"availability Diurnal: period is {self.period}, mean {self.mean}, depth {self.depth}; "
                "the period is above 0 (rounds), mean and depth are in [0, 1]"
            )
        if self.phase is not None and (
            np.shape(self.phase) != (clients,) or not np.isfinite(np.asarray(self.phase)).all()
        ):
            raise ValueError(
                f"availability Diurnal: phase has shape {np.shape(self.phase)}; one finite number (days) for each of "
                f"the N = {clients} clients is needed, or None"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, clients: int) -> Bool[Array, "N"]:
        """A coin a client, whose side depends on the hour."""
        phase = jnp.asarray(np.arange(clients) * GOLDEN % 1, jnp.float32) if self.phase is None else self.phase
        chance = self.mean * (1 + self.depth * jnp.cos(2 * jnp.pi * (round / self.period - phase)))
        return jax.random.uniform(key, (clients,)) < chance


class Trace(Availability):
    """As it was written down; after the last row it begins again.

    Attributes:
      present: who could be reached in which round.
    """

    present: Bool[Array | np.ndarray, "T N"]

    def check(self, clients: int) -> None:
        """At least one round, a column a client."""
        shape, kind = np.shape(self.present), np.asarray(self.present).dtype
        if len(shape) != 2 or shape[0] < 1 or shape[1] != clients or kind.kind != "b":
            raise ValueError(
                f"availability Trace: present is {kind} of shape {shape}; it must be bool, [rounds, N] with at least "
                f"one round and N = {clients} clients"
            )

    def available(self, key: PRNGKey, round: Int[Array, ""] | int, clients: int) -> Bool[Array, "N"]:
        """The row of this round."""
        return jnp.asarray(self.present)[round % self.present.shape[0]]
