"""All of a client's examples."""

from jaxtyping import Array, Bool

from fedjax_sel.protocols import DataSelector
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["Everything"]


class Everything(DataSelector):
    """Trains on every example.

    Source: FedAvg; McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.

    >>> Everything().signals()  # it asks for nothing
    {}
    """

    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"]) -> Bool[Array, "L"]:
        """Returns 1 for all valid examples."""
        return valid
