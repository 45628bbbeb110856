"""FedNova: clients that take more local steps do not pull harder."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._ops import cohort_weights
from fedjax_sel.protocols import Aggregator, Correction, LocalTrainer
from fedjax_sel.types import Cohort, Plan

__all__ = ["FedNova"]


class FedNova(Aggregator):
    """`w ← w + (Σ p_i a_i) Σ p_i Δ_i / a_i`: updates are normalised by the length of local training.

    `p_i` is client `i`'s share of the cohort's examples, and `a_i` is the sum of the weights of its gradients in its
    update, as reported by the trainer (`Plan.step_size_sum`, which includes the learning rate; it cancels): `τ_i`
    without momentum, `(τ_i - ρ (1 - ρ^τ_i) / (1 - ρ)) / (1 - ρ)` with the trainer's momentum `ρ`, which starts at zero
    in every round. If all clients take the same steps, this is the mean by size. The source's length for proximal local
    training is not implemented; such training is refused, and so is adaptive training, whose updates are not fixed sums
    of gradients. Batch statistics are averaged by `p_i / a_i`, as updates are.

    Source: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", 2020,
    https://arxiv.org/abs/2007.07481, section 5; the lengths, section 4.

    >>> import jax.numpy as jnp
    >>> cohort, sums = Cohort(jnp.arange(2), jnp.ones(2, bool), jnp.ones(2)), jnp.array([1.0, 3.0])
    >>> FedNova().weights(cohort, jnp.array([5, 5]), Plan(sums, sums, sums))
    Array([1.        , 0.33333334], dtype=float32)
    """

    counts_examples: ClassVar[bool] = True

    def check(self, trainer: LocalTrainer, correction: Correction) -> None:
        """Raises `ValueError` if an update is not the sum of gradients whose weights the trainer reports."""
        if not trainer.linear:
            raise ValueError(
                f"fednova needs local training whose update is a weighted sum of gradients, such as sgd (momentum "
                f"included); {trainer!r} is adaptive, or does not say that its update is one (property linear)"
            )
        if correction.pulls:
            raise ValueError(
                f"fednova divides updates by what local steps add up to, which {correction!r} changes; "
                "use one of them without the other"
            )

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns `p_i (Σ p_j a_j) / a_i`; 0 for empty slots."""
        share = cohort_weights("size", cohort, num_examples)
        some = (share * plan.step_size_sum).sum() > 0
        length = jnp.where(some, plan.step_size_sum, 1.0)  # a learning rate of 0 leaves none
        return share * (share * length).sum() / jnp.where(length > 0, length, 1.0)  # an update without gradients is 0
