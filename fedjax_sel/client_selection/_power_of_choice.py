"""What the four ways of power of choice share."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection._ops import cohort_of, gumbel_m, top_m
from fedjax_sel.types import Cohort, Context, PRNGKey


def check_candidates(where: str, d: int, ctx: Context) -> None:
    """Raise `ValueError` unless `m <= d <= N`."""
    if not ctx.m <= d <= ctx.num_clients:
        raise ValueError(
            f"{where}: d is {d} candidates; it must be at least the cohort, m = {ctx.m}, "
            f"and at most all clients, N = {ctx.num_clients}"
        )


def by_num_examples(key: PRNGKey, ctx: Context, d: int) -> Int[Array, "d"]:
    """`d` candidates without replacement, bigger clients more often; in the order in which they are drawn."""
    return gumbel_m(key, jnp.log(ctx.num_examples.astype(jnp.float32)), ctx.available, d).client


def largest(key: PRNGKey, ctx: Context, value: Float[Array, "d"]) -> Cohort:
    """The `m` candidates of largest value."""
    assert ctx.candidates is not None
    chosen = top_m(key, value, ctx.candidates >= 0, ctx.m)
    return cohort_of(ctx.candidates[chosen.client], chosen.mask)
