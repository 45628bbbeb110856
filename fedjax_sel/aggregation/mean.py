"""The mean of the cohort's models."""

from __future__ import annotations

from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._ops import WEIGHTINGS, cohort_weights
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Plan

__all__ = ["Mean"]


class Mean(Aggregator):
    """`w ← w + Σ_i a_i Δ_i`, by default with weights that sum to 1: equal, or proportional to the examples.

    With `weighting="size"`, `a_i = n_i / Σ_S n` (FedAvg); with `weighting="client"`, `a_i = 1/|S|`. A cohort's
    importance corrections multiply the weights before they are normalised; with `weighting="cohort"`, they are the
    weights. A selector that corrects nothing gives every member the weight 1 (where `critical_fl` keeps only part of a
    cohort, it scales the weights to keep their sum), so that `"cohort"` adds all updates up, which makes a step `m`
    times as long as that of `"client"`. An empty cohort leaves the model unchanged.

    Attributes:
      weighting: `"client"`, `"size"` or `"cohort"`.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.

    >>> Mean("size")
    Mean(weighting='size')
    """

    weighting: str = static(default="client", choices=WEIGHTINGS)

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan: Plan) -> Float[Array, "m"]:
        """Returns weights normalised over the filled slots, or the cohort's own."""
        # "size": FedFT-EDS, Eq. (5); LEFL, Eq. (1), over the cohort. "client": 1/m, UACS-FL, Server-Side Aggregation.
        return cohort_weights(self.weighting, cohort, num_examples)
