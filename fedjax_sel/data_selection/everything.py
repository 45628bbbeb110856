"""All of a client's rows."""

from jaxtyping import Array, Bool

from fedjax_sel.protocols import DataSelector
from fedjax_sel.types import PRNGKey, StrategyState

__all__ = ["Everything"]


class Everything(DataSelector):
    """Train on every row.

    Source: FedAvg; McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.
    """

    def select(self, key: PRNGKey, state: StrategyState, valid: Bool[Array, "L"]) -> Bool[Array, "L"]:
        """All that are valid."""
        return valid
