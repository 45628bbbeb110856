"""A fresh random part of a client's rows."""

from jaxtyping import Array, Bool

from fedjax_sel.data_selection._ops import check_positive, top_share
from fedjax_sel.protocols import DataSelector
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["RandomSubset"]


class RandomSubset(DataSelector):
    """`max(1, round(fraction · n_i))` rows, drawn afresh every round, all subsets equally likely.

    Attributes:
      fraction: share of the client's rows, in (0, 1].

    Source: the baseline RDS of FedFT-EDS; Shi, Radu and Yang, 2024, https://arxiv.org/abs/2501.00170.
    """

    fraction: Scalar = 0.5

    def __check_init__(self) -> None:
        """Refuse what is no share."""
        check_positive("random_subset: fraction", self.fraction, 1)

    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"]) -> Bool[Array, "L"]:
        """Highest random numbers."""
        return top_share(key, valid, self.fraction)
