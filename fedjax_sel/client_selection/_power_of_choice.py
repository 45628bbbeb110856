"""Functions shared by the four variants of power of choice."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection._ops import cohort_of, gumbel_m, top_m
from fedjax_sel.types import Cohort, Context, PRNGKey


def check_candidates(where: str, d: int, ctx: Context) -> None:
    """Raises `ValueError` unless `m <= d <= N`."""
    if not ctx.m <= d <= ctx.num_clients:
        raise ValueError(
            f"{where}: d is {d} candidates; it must be at least the cohort, m = {ctx.m}, "
            f"and at most all clients, N = {ctx.num_clients}"
        )


def draw_candidates(key: PRNGKey, ctx: Context, d: int) -> Int[Array, "d"]:
    """Returns `d` candidates drawn without replacement in proportion to their examples, in the order of the draws."""
    return gumbel_m(key, jnp.log(ctx.num_examples.astype(jnp.float32)), ctx.available, d).client


def top_candidates(key: PRNGKey, ctx: Context, value: Float[Array, "d"]) -> Cohort:
    """Returns the `m` candidates of largest value, of those that can be reached."""
    assert ctx.candidates is not None
    chosen = top_m(key, value, ctx.reached, ctx.m)
    return cohort_of(ctx.candidates[chosen.client], chosen.mask, chosen.nan_scores)
