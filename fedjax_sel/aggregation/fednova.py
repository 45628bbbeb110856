"""FedNova: a client that took more steps does not pull harder."""

from __future__ import annotations

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import Cohort, StrategyState, Variables

__all__ = ["FedNova"]


class FedNova(Aggregator):
    """`w ← w + (Σ p_i a_i) Σ p_i Δ_i / a_i`: updates are normalised by how far local training goes by itself.

    `p_i` are the shares of the cohort's rows and `a_i` what the steps of client `i` add up to: `τ_i` without momentum,
    `(τ_i - ρ (1 - ρ^τ_i) / (1 - ρ)) / (1 - ρ)` with momentum `ρ` that starts at zero every round. Where all take the
    same steps it is the mean by size.

    Attributes:
      momentum: `ρ` of local training; it must be the trainer's.

    Source: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", 2020,
    https://arxiv.org/abs/2007.07481, equation (9) and section 4.
    """

    momentum: Scalar = 0.0

    def init(self, variables: Variables) -> StrategyState:
        """Nothing."""
        return ()

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan) -> Float[Array, "m"]:
        """`p_i (Σ p_j a_j) / a_i`, 0 for empty slots."""
        share = cohort.weight * cohort.mask * num_examples
        share = share / jnp.maximum(share.sum(), jnp.finfo(share.dtype).tiny)
        rho, taken = jnp.asarray(self.momentum, jnp.float32), jnp.maximum(plan.steps, 1).astype(jnp.float32)
        length = (taken - rho * (1 - rho**taken) / (1 - rho)) / (1 - rho)
        return share * (share * length).sum() / length

    def step(self, state: StrategyState, variables: Variables, delta: Variables) -> tuple[Variables, StrategyState]:
        """Add the sum."""
        return optax.apply_updates(variables, delta), state
