"""Clients in proportion to their examples."""

from typing import ClassVar

import jax.numpy as jnp

from fedjax_sel.client_selection._ops import cohort_of, draw_categorical, gumbel_m
from fedjax_sel.protocols import ClientSelector
from fedjax_sel.pytree import static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["BySize"]


class BySize(ClientSelector):
    """`m` draws with probabilities proportional to the clients' examples, `p_i = n_i / n`.

    Attributes:
      replacement: whether to draw with replacement, so that one client can fill several slots. With the unweighted
        mean, this is the source's unbiased scheme I ("MD sampling": a client is in the cohort with probability
        `1 - (1 - p_i)^m`). Without replacement, each draw is among the clients left. This is not in the source, and is
        biased; power of choice draws its candidates this way.

    Source: Li et al., "On the Convergence of FedAvg on Non-IID Data", 2020, https://arxiv.org/abs/1907.02189, scheme I.

    >>> BySize(replacement=True)
    BySize(replacement=True)
    """

    counts_examples: ClassVar[bool] = True

    replacement: bool = static(default=False)

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns a cohort drawn in proportion to the clients' examples."""
        log_size = jnp.log(ctx.num_examples.astype(jnp.float32))
        if not self.replacement:
            return gumbel_m(key, log_size, ctx.available, ctx.m)
        client = draw_categorical(key, jnp.where(ctx.available, log_size, -jnp.inf), ctx.m)
        return cohort_of(client, ctx.available[client] & (ctx.num_examples[client] > 0))
