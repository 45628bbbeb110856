"""The mean of the cohort's models."""

import optax
from jaxtyping import Array, Float, Int

from fedjax_sel.aggregation._weights import check_by, mean_weights
from fedjax_sel.protocols import Aggregator
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, StrategyState, Variables

__all__ = ["Mean"]


class Mean(Aggregator):
    """`w ← w + Σ_i a_i Δ_i` with weights that add up to 1: equal, or in proportion to the rows trained on.

    With `by="size"`, `a_i = n_i / Σ_S n` (FedAvg); with `by="client"`, `a_i = 1/|S|`. A cohort's importance corrections
    multiply the weights before they are normalised. An empty cohort leaves the model as it was.

    Source: McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.
    """

    weighting: str = static(default="client")

    def __check_init__(self) -> None:
        """Refuse what is not a weighting."""
        check_by("mean", self.weighting)

    def init(self, variables: Variables) -> StrategyState:
        """Nothing."""
        return ()

    def weights(self, cohort: Cohort, num_examples: Int[Array, "m"], plan) -> Float[Array, "m"]:
        """Normalised over the filled slots."""
        return mean_weights(self.weighting, cohort, num_examples)

    def step(self, state: StrategyState, variables: Variables, delta: Variables) -> tuple[Variables, StrategyState]:
        """Add the mean."""
        return optax.apply_updates(variables, delta), state
