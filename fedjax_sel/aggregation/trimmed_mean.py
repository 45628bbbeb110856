"""The coordinate-wise trimmed mean of the updates, which ignores the largest and the smallest values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._ops import equal_weights, sort_present
from fedjax_sel.arrays import expand, floor_share, widen
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import Cohort, Plan, Variables

__all__ = ["TrimmedMean"]


class TrimmedMean(Aggregator):
    """`w ← w + Σ_{i ∈ U} Δ_i / |U|` in each coordinate; `U` leaves out the `β m` largest and `β m` smallest.

    `m` is the number of updates that came back, and `β m` is rounded down (the source assumes an integer). All of
    them count equally. An empty cohort leaves the model unchanged.

    Attributes:
      beta: `β`, the fraction removed at each end, in [0, 1/2); at least the fraction of arbitrary updates.

    Source: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", 2018,
    https://arxiv.org/abs/1803.01498, Definition 2 and Algorithm 1, Option II.

    >>> import jax.numpy as jnp
    >>> TrimmedMean(0.25).combine(jnp.array([1.0, 7.0, 2.0, 99.0]), jnp.ones(4) / 4)
    Array(4.5, dtype=float32)
    """

    beta: Scalar = param(default=0.1, low=0, below=0.5)

    stacked = True

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns equal weights."""
        return equal_weights(cohort)

    def combine(self, deltas: Variables, weights: Float[Array, "m"]) -> Variables:
        """Returns the trimmed mean of the updates with a weight above 0; 0 if there are none."""
        present = weights > 0
        count = present.sum()
        cut = floor_share(self.beta, count)
        cut = jnp.minimum(cut, jnp.maximum(count - 1, 0) // 2)  # something is left, even if β is rounded to 1/2
        place = jnp.arange(weights.shape[0])
        inside = (place >= cut) & (place < count - cut)

        def trimmed(leaf):
            kept = widen(jnp.where(expand(inside, leaf), sort_present(leaf, present), 0.0))
            return kept.sum(0) / jnp.maximum(inside.sum(), 1)

        return jax.tree.map(trimmed, deltas)
