"""A control: random cohorts of the sizes that GPFL's cohorts have."""

from __future__ import annotations

import jax.numpy as jnp

from fedjax_sel.client_selection._ops import cohort_of, uniform_m
from fedjax_sel.client_selection.gpfl import VARIANTS
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

WARM_UP = VARIANTS["code"]["warm_up"]


class SmallCohortsFirst(ClientSelector):
    """Random cohorts, of `⌈N/W⌉` members (at most `m`) in the first `W = 20` rounds, as in GPFL's code.

    >>> SmallCohortsFirst().signals().before
    {}
    """

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns a random cohort; all available clients are equally likely."""
        cohort = uniform_m(key, ctx.available, ctx.m)
        few = jnp.arange(ctx.m) < -(-ctx.num_clients // WARM_UP)
        return cohort_of(cohort.client, cohort.mask & ((ctx.round >= WARM_UP) | few))
