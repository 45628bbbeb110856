"""FedOpt: the mean of the updates as a gradient for the server's adaptive optimiser."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._weights import check_by, mean_weights
from fedjax_sel.catalog import check_name
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import Scalar, static
from fedjax_sel.types import Cohort, Variables

__all__ = ["FedOpt"]


class Moments(NamedTuple):
    """Memory of `FedOpt`: first and second moment of the pseudo-gradient."""

    first: Variables
    second: Variables


class FedOpt(Aggregator):
    """`w ← w + η m / (√v + τ)` with `m ← β₁ m + (1 - β₁) Δ` and `v` by the optimiser's rule; `v` begins at `τ²`.

    `adagrad`: `v + Δ²`; `adam`: `β₂ v + (1 - β₂) Δ²`; `yogi`: `v - (1 - β₂) Δ² sign(v - Δ²)`. There is no bias
    correction, as in the source.

    Attributes:
      optimiser: `"adam"`, `"adagrad"` or `"yogi"`.
      learning_rate: `η`, of the server.
      beta1, beta2: `β₁`, `β₂`.
      tau: `τ`, how adaptive it is.
      by: weights of the mean `Δ`, `"client"` or `"size"`.

    Source: Reddi et al., "Adaptive Federated Optimization", 2021, https://arxiv.org/abs/2003.00295, Algorithm 2.
    """

    learning_rate: Scalar = 0.01
    beta1: Scalar = 0.9
    beta2: Scalar = 0.99
    tau: Scalar = 0.001
    optimiser: str = static(default="adam")
    weighting: str = static(default="client")

    def __check_init__(self) -> None:
        """Refuse what does not exist."""
        check_name("fedopt: optimiser", self.optimiser, ["adam", "adagrad", "yogi"])
        check_by("fedopt", self.weighting)

    def init(self, variables: Variables) -> Moments:
        """`m = 0`, `v = τ²`."""
        second = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1.0) * self.tau**2, variables)
        return Moments(jax.tree.map(jnp.zeros_like, variables), second)

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan) -> Float[Array, "m"]:
        """Of the mean."""
        return mean_weights(self.weighting, cohort, num_examples)

    def step(self, state: Moments, variables: Variables, delta: Variables) -> tuple[Variables, Moments]:
        """One step of the server's optimiser."""
        rule = {
            "adagrad": lambda v, d: v + d**2,
            "adam": lambda v, d: self.beta2 * v + (1 - self.beta2) * d**2,
            "yogi": lambda v, d: v - (1 - self.beta2) * d**2 * jnp.sign(v - d**2),
        }[self.optimiser]
        first = jax.tree.map(lambda m, d: self.beta1 * m + (1 - self.beta1) * d, state.first, delta)
        second = jax.tree.map(rule, state.second, delta)
        moved = jax.tree.map(
            lambda w, m, v: w + self.learning_rate * m / (jnp.sqrt(v) + self.tau), variables, first, second
        )
        return moved, Moments(first, second)
