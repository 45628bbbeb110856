"""Orthogonal matching pursuit: a few weighted vectors whose sum approximates a target."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.pytree import Scalar

DEPENDENT = 1e-6
"""A vector counts as a combination of the chosen ones if they leave a smaller fraction of its squared norm."""


def pursue(
    point: Float[Array, "L k"],
    target: Float[Array, "k"],
    allowed: Bool[Array, "L"],
    count: Int[Array, ""] | int,
    ridge: Scalar = 0.0,
    tolerance: Scalar = 1e-4,
) -> tuple[Float[Array, "L"], Bool[Array, "L"]]:
    """Returns the weights of all vectors, 0 outside the set `S`, and the mask of `S`.

    In each step, the vector of largest `|⟨g_j, r⟩|` joins, where `r = b - Σ_{i ∈ S} w_i g_i` is the residual of the
    target `b`; then `w` minimises `‖b - Σ_{i ∈ S} w_i g_i‖² + λ ‖w‖²`. The inverse of `G_S G_S^T + λ I` is kept and
    grows by one row a step, so a step takes `O(L² + L k)`. Among equally good vectors, the first joins.

    Args:
      point: `g`.
      target: `b`.
      allowed: which vectors can be chosen.
      count: largest number of steps.
      ridge: `λ`.
      tolerance: it stops when `‖r‖` is at most this fraction of `‖b‖`.

    Source: Pati, Rezaiifar and Krishnaprasad, "Orthogonal matching pursuit", 1993,
      https://doi.org/10.1109/ACSSC.1993.342465; with `λ`: Killamsetty et al., "GRAD-MATCH", 2021,
      https://arxiv.org/abs/2103.00123, Algorithm 2.

    >>> g = jnp.array([[1.0, 0], [0, 1], [1, 1], [-1, 2]])
    >>> (100 * pursue(g, g.sum(0), jnp.ones(4, bool), 2, ridge=0.5)[0]).round()
    Array([  0.,   0., 161.,  98.], dtype=float32)
    """
    n, aimed, size = point.shape[0], point @ target, jnp.linalg.norm(target)

    def step(_, carry):
        inverse, weight, chosen, left = carry
        residual = target - point.T @ weight
        score = jnp.where(left, jnp.abs(point @ residual), -jnp.inf)
        new = jnp.arange(n) == score.argmax()
        wanted = left.any() & (jnp.linalg.norm(residual) > tolerance * size)
        own = new.astype(point.dtype) @ point
        column = jnp.where(chosen, point @ own, 0.0)
        inside = inverse @ column
        whole = own @ own + ridge
        rest = whole - column @ inside  # Schur complement
        joins = wanted & (rest > DEPENDENT * whole)
        off = inside - new
        grown = inverse + off[:, None] * off[None, :] / jnp.where(joins, rest, 1.0)
        inverse = jnp.where(joins, grown, inverse)
        chosen = chosen | (new & joins)
        return inverse, inverse @ jnp.where(chosen, aimed, 0.0), chosen, left & ~(new & wanted)

    start = jnp.zeros((n, n), point.dtype), jnp.zeros(n, point.dtype), jnp.zeros(n, bool), allowed
    _, weight, chosen, _ = jax.lax.fori_loop(0, count, step, start)
    return weight, chosen
