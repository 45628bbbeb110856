"""Krum: the update closest to its nearest neighbours, or the mean of the best few."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.aggregation._ops import equal_weights
from fedjax_sel.arrays import expand, widen
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Plan, Variables

__all__ = ["Krum"]


class Krum(Aggregator):
    """`w ← w + Δ_{i*}`, where `i*` has the smallest sum of squared distances to its `m - f - 2` nearest others.

    This sum is the update's score. With `num_selected > 1`, this is Multi-Krum: the mean of the `num_selected` updates
    with the smallest scores, or of all if there are fewer. `m` is the number of updates that came back; if
    `m - f - 2 < 1`, only the nearest one counts. The guarantee requires `2 f + 2 < m`; a run warns if its cohorts are
    too small for that even if all members return. An empty cohort leaves the model unchanged.

    Attributes:
      f: number of updates that may be arbitrary.
      num_selected: number of updates to average; 1 is Krum.

    Source: Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", 2017,
    https://proceedings.neurips.cc/paper/2017/hash/f4b9ec30ad9f68f89b29639786cb62ef-Abstract.html, Krum and Multi-Krum;
    its preprint is "Byzantine-Tolerant Machine Learning", https://arxiv.org/abs/1703.02757.

    >>> import jax.numpy as jnp
    >>> Krum(f=1).combine(jnp.array([0.0, 1.0, 1.5, 3.0, 9.0]), jnp.ones(5) / 5)
    Array(1., dtype=float32)
    """

    f: int = static(default=1, low=0)
    num_selected: int = static(default=1, low=1)

    stacked = True

    def check_size(self, m: int) -> None:
        """Warns if the guarantee does not hold even if all members return."""
        if m <= 2 * self.f + 2:
            warnings.warn(
                f"krum: f is {self.f}, but cohorts have {m} members; its guarantee needs more than 2 f + 2 = "
                f"{2 * self.f + 2}",
                stacklevel=2,
            )

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns equal weights."""
        return equal_weights(cohort)

    def combine(self, deltas: Variables, weights: Float[Array, "m"]) -> Variables:
        """Returns the mean of the updates with the smallest scores; 0 if there are none."""
        present = weights > 0
        score = krum_scores(deltas, present, self.f)
        order = jnp.lexsort((score, ~present))  # present members first; ties: the first slot, as in the source
        position = jnp.argsort(order)
        chosen = present & (position < self.num_selected)
        count = jnp.maximum(chosen.sum(), 1)
        return jax.tree.map(lambda leaf: widen(jnp.where(expand(chosen, leaf), leaf, 0.0)).sum(0) / count, deltas)


def krum_scores(deltas: Variables, present: Bool[Array, "m"], f: int) -> Float[Array, "m"]:
    """Returns `s(i) = Σ_{i → j} ‖Δ_i - Δ_j‖²` over the `m - f - 2` nearest present others; ∞ for absent members."""
    slots = present.shape[0]
    distance = jnp.zeros((slots, slots))
    for leaf in jax.tree.leaves(widen(deltas)):
        flat = jnp.where(expand(present, leaf), leaf, 0.0).reshape(slots, -1)
        distance += jax.lax.map(lambda one, flat=flat: jnp.sum((flat - one[None]) ** 2, axis=1), flat)
    others = present[None] & ~jnp.eye(slots, dtype=bool)
    nearest = jnp.sort(jnp.where(others, distance, jnp.inf), axis=1)
    neighbours = jnp.clip(present.sum() - f - 2, 1, jnp.maximum(present.sum() - 1, 0))
    score = jnp.where(jnp.arange(slots)[None] < neighbours, nearest, 0.0).sum(1)
    return jnp.where(present, score, jnp.inf)
