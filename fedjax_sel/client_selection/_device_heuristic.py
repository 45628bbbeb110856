"""The heuristic `H(S)` that scores a set of devices.

`f` is Float["4 N"] throughout, with one row each for compute, energy efficiency, memory and network; more is better:

    H(S) = α mean_S f1 + β mean_S f2 + γ mean_S f3 + δ min_S f4          Eqs. (3.4) to (3.8)

Eq. (3.8) multiplies f4 by the 0/1 mask of S before it takes the minimum, which makes it 0 whenever a device is left
out; here the network of a device that is left out counts as infinite. Since only f4 enters through its minimum,
`H(S) = mean_S a + δ min_S f4` with the *worth* `a = αf1 + βf2 + γf3`.

Source: Mouli, "Device Selection Algorithm for Federated Learning", thesis, IIT Patna, 2024.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.pytree import Pytree, Scalar, param


class Weights(Pytree):
    """The weight of each property; the source uses 0.25 for all.

    Attributes:
      alpha: of the mean computing power, f1.
      beta: of the mean energy efficiency, f2.
      gamma: of the mean memory, f3.
      delta: of the worst network, f4.
    """

    alpha: Scalar = param(default=0.25)
    beta: Scalar = param(default=0.25)
    gamma: Scalar = param(default=0.25)
    delta: Scalar = param(default=0.25)

    def worth(self, f: Float[Array, "4 N"]) -> Float[Array, "N"]:
        """Returns what each device adds to the mean."""
        return self.alpha * f[0] + self.beta * f[1] + self.gamma * f[2]


class Choice(Pytree):
    """A set of devices.

    Attributes:
      mask: which devices it contains.
      value: its `H`; -inf for the empty set.
    """

    mask: Bool[Array, "N"]
    value: Float[Array, ""]


def heuristic(f: Float[Array, "4 N"], weights: Weights, mask: Bool[Array, "N"]) -> Float[Array, ""]:
    """Returns `H` of the set `mask`; -inf for the empty set."""
    count = mask.sum()
    mean = jnp.where(mask, weights.worth(f), 0).sum() / jnp.maximum(count, 1)  # Eqs. (3.5) to (3.7)
    weakest = jnp.where(mask, f[3], jnp.inf).min()  # Eq. (3.8)
    # Eq. (3.4)
    return jnp.where(count > 0, mean + weights.delta * jnp.where(count > 0, weakest, 0), -jnp.inf)


def cohort_size(epsilon: float, clients: int) -> int:
    """Returns `s = ⌈εN⌉`, the number of devices to select out of `N`.

    Raises:
      ValueError: ε is not in (0, 1].

    >>> cohort_size(0.75, 30)
    23
    """
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon is {epsilon}; it is the fraction of devices selected, in (0, 1]")
    return max(1, math.ceil(epsilon * clients - 1e-9))  # 0.1 * 30 is above 3 in floating point
