"""Random client selection."""

from fedjax_sel.client_selection._ops import uniform_m
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["Uniform"]


class Uniform(ClientSelector):
    """`m` clients without replacement, all subsets equally likely.

    Source: FedAvg; McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1. "Random Selection" of UACS-FL.

    >>> Uniform().signals().before  # it asks for nothing
    {}
    """

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns a random cohort; all available clients are equally likely."""
        return uniform_m(key, ctx.available, ctx.m)
