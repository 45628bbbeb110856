"""Federated averaging of clipped updates with Gaussian noise, for client-level differential privacy."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.kernels.clipping import clipping_factor
from fedjax_sel.protocols import Aggregator, Correction, LocalTrainer, overrides
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import Cohort, Plan, PRNGKey, Variables

__all__ = ["DPFedAvg"]


class DPFedAvg(Aggregator):
    """`w ← w + (Σ_S Δ_i min(1, S / ‖Δ_i‖)) / q W + N(0, (z S / q W)² I)`; the norm is over the whole update.

    The sum is divided by the expected number of members `q W`, however many return, so that one client changes it by at
    most `S / q W`. If nobody returns, the noise is released all the same. `noise_multiplier=0` only clips and is not
    private. `engine.privacy.epsilon_of` returns the `ε` of a run.

    Attributes:
      clip: `S`, the largest norm of an update.
      noise_multiplier: `z`.
      expected: `q W`; None: the number of slots of a cohort. If clients are drawn independently, by `Bernoulli(p)`
        among `N` with a cohort of all, it is `p N`.

    Source: McMahan et al., "Learning Differentially Private Recurrent Language Models", 2018,
    https://arxiv.org/abs/1710.06963, Algorithm 1, with flat clipping and the fixed-denominator estimator.

    >>> import jax.numpy as jnp
    >>> DPFedAvg(clip=1.0).receive({"w": jnp.array([0.0, 4.0])})["w"]
    Array([0., 1.], dtype=float32)
    """

    clip: Scalar = param(default=1.0, above=0, below=math.inf)
    noise_multiplier: Scalar = param(default=1.0, low=0, below=math.inf)
    expected: Scalar | None = param(default=None, above=0, below=math.inf)

    def check(self, trainer: LocalTrainer, correction: Correction) -> None:
        """Raises `ValueError` for a correction that keeps what clients send, which is neither clipped nor noised."""
        if overrides(correction, "merge") or overrides(correction, "adjust"):
            raise ValueError(
                f"dp_fedavg clips updates and adds noise to their sum, but {correction!r} moves models by what clients "
                "send as it is; use another correction"
            )

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns `1 / q W` for every member; 0 for empty slots."""
        return jnp.where(cohort.mask, 1.0 / self.divisor(cohort.mask.shape[0]), 0.0)

    def divisor(self, slots: int) -> Scalar:
        """Returns `q W`."""
        return float(slots) if self.expected is None else self.expected

    def receive(self, delta: Variables) -> Variables:
        """Returns the update, clipped to a norm of at most `S`; 0 if the norm's square is beyond float32.

        Raises:
          ValueError: it has numbers of less than 32 bits, which rounding could make longer than `S` again.
        """
        if short := {leaf.dtype.name for leaf in jax.tree.leaves(delta) if leaf.dtype.itemsize < 4}:
            raise ValueError(
                f"dp_fedavg: the model has parameters of type {', '.join(sorted(short))}, which rounding could make "
                "longer than the clipping norm; use float32 (param_dtype=float32)"
            )
        factor = clipping_factor(delta, self.clip)
        return jax.tree.map(lambda leaf: leaf * factor, delta)

    def perturb(self, key: PRNGKey, change: Variables, slots: int) -> Variables:
        """Returns the change with noise of standard deviation `z S / q W` added to every number."""
        deviation = self.noise_multiplier * self.clip / self.divisor(slots)  # Alg. 1: σ = z S / (q W)
        noise = optax.tree.random_like(key, change, dtype=float)
        return jax.tree.map(lambda leaf, normal: leaf + deviation * normal, change, noise)
