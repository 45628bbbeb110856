"""All of a client's rows."""

from jaxtyping import Array, Bool

from fedjax_sel.pytree import Pytree
from fedjax_sel.types import PRNGKey

__all__ = ["Everything"]


class Everything(Pytree):
    """Train on every row.

    Source: FedAvg; McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.
    """

    needs = ()

    def keep(self, key: PRNGKey, valid: Bool[Array, "L"]) -> Bool[Array, "L"]:
        """All that are valid."""
        return valid
