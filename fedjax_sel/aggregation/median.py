"""The coordinate-wise median of the updates: a minority of arbitrary ones cannot move it far."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._ops import equal_weights, sort_present
from fedjax_sel.arrays import widen
from fedjax_sel.protocols import Aggregator
from fedjax_sel.types import Cohort, Plan, Variables

__all__ = ["Median"]


class Median(Aggregator):
    """`w ← w + med_i Δ_i` in each coordinate; of an even number of updates, the mean of the middle two.

    All updates that came back count equally. An empty cohort leaves the model unchanged.

    Source: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", 2018,
    https://arxiv.org/abs/1803.01498, Definition 1 and Algorithm 1, Option I.

    >>> import jax.numpy as jnp
    >>> Median().combine(jnp.array([1.0, 7.0, 2.0, 99.0]), jnp.array([1.0, 1.0, 1.0, 0.0]))
    Array(2., dtype=float32)
    """

    stacked = True

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns equal weights."""
        return equal_weights(cohort)

    def combine(self, deltas: Variables, weights: Float[Array, "m"]) -> Variables:
        """Returns the median of the updates with a weight above 0; 0 if there are none."""
        present = weights > 0
        count = present.sum()
        low, high = jnp.maximum(count - 1, 0) // 2, count // 2

        def middle(leaf):
            ordered = sort_present(leaf, present)
            return jnp.where(count > 0, (widen(ordered[low]) + widen(ordered[high])) / 2, 0.0)

        return jax.tree.map(middle, deltas)
