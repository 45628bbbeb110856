"""Random client selection."""

from fedjax_sel.client_selection._ops import everyone, no_state, unchanged, uniform_m
from fedjax_sel.pytree import Pytree
from fedjax_sel.types import Cohort, Context, PRNGKey, State

__all__ = ["Uniform"]


class Uniform(Pytree):
    """`m` clients without replacement, all subsets equally likely.

    Source: FedAvg; McMahan et al., 2017, https://arxiv.org/abs/1602.05629, Algorithm 1. "Random Selection" of UACS-FL.
    """

    before = after = ()
    init = no_state
    candidates = everyone
    observe = unchanged

    def select(self, key: PRNGKey, state: State, ctx: Context) -> Cohort:
        """Everybody available has the same chance."""
        return uniform_m(key, ctx.available, ctx.m)
