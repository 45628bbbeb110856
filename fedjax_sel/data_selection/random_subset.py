"""A new random subset of a client's examples in every round."""

from jaxtyping import Array, Bool

from fedjax_sel.data_selection._ops import keep_top
from fedjax_sel.protocols import DataSelector
from fedjax_sel.pytree import Scalar, param
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["RandomSubset"]


class RandomSubset(DataSelector):
    """`max(1, round(fraction · n_i))` examples, drawn anew in every round, with all subsets equally likely.

    Attributes:
      fraction: of the client's examples, in (0, 1].

    Source: the baseline RDS of FedFT-EDS; Shi, Radu and Yang, 2024, https://arxiv.org/abs/2501.00170.

    >>> RandomSubset(fraction=0.3)
    RandomSubset(fraction=0.3)
    """

    fraction: Scalar = param(default=0.5, above=0, high=1)

    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"]) -> Bool[Array, "L"]:
        """Returns 1 for the highest random numbers."""
        return keep_top(key, valid, self.fraction)
