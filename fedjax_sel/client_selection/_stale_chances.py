"""Sampling probabilities derived from the clients' last reports."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection._ops import cohort_of, draw_categorical
from fedjax_sel.client_selection._unbiased import normalize
from fedjax_sel.types import PAD_CLIENT, Cohort, Context, PRNGKey


def draw_clients(key: PRNGKey, chance: Float[Array, "N"], ctx: Context) -> Int[Array, "m"]:
    """Returns `m` draws with replacement among the available clients; `PAD_CLIENT` if there are none.

    A probability that is not finite counts as 0. If all available clients have probability 0, they are drawn uniformly.
    """
    chance = jnp.where(ctx.available & jnp.isfinite(chance), chance, 0.0)
    log_chance = jnp.where(chance.sum() > 0, jnp.log(chance), jnp.where(ctx.available, 0.0, -jnp.inf))
    client = draw_categorical(key, log_chance, ctx.m)
    return jnp.where(ctx.available[client], client, PAD_CLIENT).astype(jnp.int32)


def weigh_draws(client: Int[Array, "m"], chance: Float[Array, "N"], ctx: Context) -> Cohort:
    """Returns the cohort of the draws, each of weight `1 / (m N p_i)`; `N` and `p` are over the available clients.

    A probability that is not finite counts as 0, and in the cohort's `nan_scores`.
    """
    finite = jnp.isfinite(chance)
    cohort = cohort_of(client, client >= 0, (ctx.available & ~finite).sum())
    p = normalize(jnp.where(ctx.available & finite, chance, 0.0))[client]
    everyone = ctx.available.sum().astype(jnp.float32)  # times m, it can exceed int32
    weight = 1.0 / (ctx.m * everyone * jnp.where(p > 0, p, 1.0 / jnp.maximum(everyone, 1)))
    return cohort.replace(weight=jnp.where(cohort.mask, weight, 0.0))


def renew_chances(
    chance: Float[Array, "N"], client: Int[Array, "m"], mask: Bool[Array, "m"], score: Float[Array, "m"]
) -> Float[Array, "N"]:
    """Returns `p_i ← score_i / Σ_S score · (1 - Σ_{j ∉ S} p_j)` for the members of `S`; the others keep theirs.

    If all scores are 0, nothing changes; members whose score is not finite keep their probability.

    Args:
      chance: `p`, which sums to 1.
      client, mask: the members of `S`; each client occurs once.
      score: of each member, at least 0.
    """
    mask = mask & jnp.isfinite(score)
    score = jnp.where(mask, score, 0.0)
    mass = jnp.where(mask, chance[client], 0.0).sum()
    new = jnp.where(score.sum() > 0, normalize(score) * mass, chance[client])
    return chance.at[jnp.where(mask, client, chance.shape[0])].set(new, mode="drop")
