"""FedAvgM: the mean of the updates with the server's momentum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._weights import check_by, mean_weights
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import Scalar, static
from fedjax_sel.types import Cohort, Variables

__all__ = ["FedAvgM"]


class FedAvgM(Aggregator):
    """`v ← β v + Δ`, `w ← w + η v`, with `Δ` the mean of the updates; `β = 0`, `η = 1` is `mean`.

    Attributes:
      momentum: `β`.
      learning_rate: `η`, of the server.
      by: weights of the mean, `"client"` or `"size"`.

    Source: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", 2019, https://arxiv.org/abs/1909.06335, section 4.3.
    """

    momentum: Scalar = 0.9
    learning_rate: Scalar = 1.0
    weighting: str = static(default="client")

    def __check_init__(self) -> None:
        """Refuse what is no weighting."""
        check_by("fedavgm", self.weighting)

    def init(self, variables: Variables) -> Variables:
        """`v = 0`."""
        return jax.tree.map(jnp.zeros_like, variables)

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan) -> Float[Array, "m"]:
        """Of the mean."""
        return mean_weights(self.weighting, cohort, num_examples)

    def step(self, state: Variables, variables: Variables, delta: Variables) -> tuple[Variables, Variables]:
        """Roll on."""
        velocity = jax.tree.map(lambda v, d: self.momentum * v + d, state, delta)
        return optax.apply_updates(variables, jax.tree.map(lambda v: self.learning_rate * v, velocity)), velocity
