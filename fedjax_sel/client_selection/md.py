"""MD sampling: `m` draws of clients in proportion to their examples, with replacement."""

from __future__ import annotations

from typing import ClassVar

from fedjax_sel.client_selection._unbiased import draw_unbiased, target_weights
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["MD"]


class MD(ClientSelector):
    """`m` draws with replacement, client `i` with probability `p_i = n_i / n`; each draw has weight `1/m`.

    With the aggregation's `weighting: client` or `cohort`, `Σ weight_i Δ_i` has the expectation `Σ_i p_i Δ_i` of full
    participation (with `size`, the examples would count twice). A client is in the cohort with probability
    `1 - (1 - p_i)^m`; one that is drawn more than once trains once, and its weights add up. Probabilities are over the
    available clients. The server needs to know only how many examples each client has.

    Source: Li et al., "On the Convergence of FedAvg on Non-IID Data", 2020, https://arxiv.org/abs/1907.02189, scheme I;
    the name: Li et al., "Federated Optimization in Heterogeneous Networks", 2020, https://arxiv.org/abs/1812.06127, as
    called by Fraboni et al., 2021, https://arxiv.org/abs/2105.05883 (multinomial distribution).

    >>> MD().replacement
    True
    """

    replacement: ClassVar[bool] = True
    counts_examples: ClassVar[bool] = True

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns the draws."""
        p = target_weights("size", ctx)
        return draw_unbiased(key, p, p, ctx.m)
