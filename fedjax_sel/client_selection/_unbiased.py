"""Cohorts whose weighted sum of updates equals that of full participation in expectation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.client_selection._inclusion import draw_in_order
from fedjax_sel.client_selection._ops import cohort_of, draw_categorical
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import Cohort, Context, PRNGKey


def target_weights(weighting: str, ctx: Context) -> Float[Array, "N"]:
    """Returns each client's weight in full participation, by `"size"` or `"client"`; those available sum to 1."""
    weight = ctx.num_examples.astype(jnp.float32) if weighting == "size" else jnp.ones(ctx.num_clients)
    return normalize(jnp.where(ctx.available, weight, 0.0))


def normalize(weight: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """Returns weights divided by their sum; zeros if that is 0."""
    total = weight.sum()
    return jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), 0.0)


def draw_unbiased(
    key: PRNGKey, chance: Float[Array, "N"], target: Float[Array, "N"], m: int, *, replacement: bool = True
) -> Cohort:
    """Returns `m` clients whose `Σ weight_i Δ_i` is `Σ_i target_i Δ_i` in expectation.

    With replacement, it makes `m` draws with probabilities `q`, each of weight `target_i / (m q_i)` (Hansen and
    Hurwitz). Without replacement, the clients are distinct: client `i` is included with the probability `π_i` of
    `chances_of_inclusion` and has weight `target_i / π_i` (Horvitz and Thompson); the draw is systematic, in random
    order (Madow). A client of probability 0 is never drawn, and its target is lost.

    Args:
      key: for the draws.
      chance: at least 0, with any sum; 0 for unavailable clients.
      target: weights in full participation.
      m: slots.
      replacement: whether a client can be drawn more than once.

    Source: Hansen and Hurwitz, 1943, https://doi.org/10.1214/aoms/1177731356; Horvitz and Thompson, 1952,
      https://doi.org/10.1080/01621459.1952.10483446; Madow, 1949, https://doi.org/10.1214/aoms/1177729988.
    """
    if replacement:
        q = normalize(chance)
        client = draw_categorical(key, jnp.log(q), m)
        cohort = cohort_of(client, q[client] > 0)
        weight = target[client] / (m * jnp.where(q[client] > 0, q[client], 1.0))
        return cohort.replace(weight=jnp.where(cohort.mask, weight, 0.0))
    pi = chances_of_inclusion(chance, m)
    order, hit = draw_in_order(key, pi)
    _, place = jax.lax.top_k(hit.astype(jnp.float32), m)
    client = order[place]
    cohort = cohort_of(client, hit[place])
    weight = target[client] / jnp.where(pi[client] > 0, pi[client], 1.0)
    return cohort.replace(weight=jnp.where(cohort.mask, weight, 0.0))


def chances_of_inclusion(importance: Float[Array, "N"], expected: Scalar | int) -> Float[Array, "N"]:
    """Returns `π`, which sums to `expected`: proportional to the importance, capped at 1.

    With the importances in ascending order, `u_(1) ≤ … ≤ u_(n)`, the `l` smallest get
    `π_i = (expected + l - n) u_i / Σ_{j ≤ l} u_(j)` and the others 1, with the largest `l` for which no `π` exceeds 1.
    These probabilities minimise `Σ u_i² / π_i`, the variance of the weighted sum of independent draws. If fewer than
    `expected` clients have a positive importance, each of these has `π = 1`. An importance that is not finite counts
    as 0.

    Source: Chen, Horváth and Richtárik, "Optimal Client Sampling for Federated Learning", 2022,
      https://arxiv.org/abs/2010.13723, equation (7).
    """
    importance = jnp.where(jnp.isfinite(importance), importance, 0.0)
    u = jnp.sort(importance)[::-1]
    tail = jnp.cumsum(u[::-1])[::-1]  # the sum from each one down
    certain = jnp.arange(u.shape[0])  # n - l
    fits = (expected - certain) * u <= tail * (1 + 1e-6)
    first = jnp.argmax(fits)
    none: Bool[Array, ""] = ~fits.any()
    scale = (expected - first) / jnp.where(tail[first] > 0, tail[first], 1.0)
    pi = jnp.minimum(scale * importance, 1.0)
    rank = jnp.argsort(jnp.argsort(-importance, stable=True), stable=True)
    return jnp.where(none | (rank < first), jnp.where(importance > 0, 1.0, 0.0), pi)
