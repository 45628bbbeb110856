"""Operations on cohorts: one slot for each client, and fewer members."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from fedjax_sel.types import PAD_CLIENT, Cohort

FEW = 64
"""The largest number of slots for which comparing all pairs is faster than sorting."""


def merge_duplicates(cohort: Cohort) -> Cohort:
    """Returns a cohort in which a client that was drawn more than once occurs once, with the sum of its weights."""
    m = cohort.mask.shape[0]
    if m <= FEW:
        same = (cohort.client[:, None] == cohort.client[None]) & cohort.mask[:, None] & cohort.mask[None]
        first = cohort.mask & (jnp.argmax(same, axis=1) == jnp.arange(m))
        weight = jnp.where(first, jnp.sum(jnp.where(same, cohort.weight[None], 0.0), axis=1), 0.0)
    else:
        order = jnp.argsort(jnp.where(cohort.mask, cohort.client, PAD_CLIENT))  # stable: the first slot of each client
        client, drawn = cohort.client[order], cohort.mask[order]
        begins = drawn & jnp.append(True, (client[1:] != client[:-1]) | ~drawn[:-1])
        sums = jax.ops.segment_sum(jnp.where(drawn, cohort.weight[order], 0.0), jnp.cumsum(begins), m + 1)
        first = jnp.zeros(m, bool).at[order].set(begins)
        weight = jnp.zeros(m, sums.dtype).at[order].set(jnp.where(begins, sums[jnp.cumsum(begins)], 0.0))
    return Cohort(jnp.where(first, cohort.client, PAD_CLIENT), first, weight, cohort.nan_scores)


def restrict(cohort: Cohort, mask: Bool[Array, "m"]) -> Cohort:
    """Returns the cohort with only these members in its mask; it still names the others."""
    return Cohort(cohort.client, mask, jnp.where(mask, cohort.weight, 0.0))
