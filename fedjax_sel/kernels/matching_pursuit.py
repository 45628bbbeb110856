"""Orthogonal matching pursuit: a few weighted vectors whose sum approximates a target."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.pytree import Scalar

DEPENDENT = 1e-6
"""A vector counts as a combination of the chosen ones if less than this fraction of its squared norm is left of it."""


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
    target `b`; then `w` minimises `‖b - Σ_{i ∈ S} w_i g_i‖² + λ ‖w‖²`. The Cholesky factor of `G_S G_S^T + λ I` is kept
    and grows by one row a step, so a step takes `O(L² + L k)`. (The inverse would take as long to grow, but in float32
    its errors add up.) Among equally good vectors, the first joins.

    Args:
      point: `g`.
      target: `b`.
      allowed: which vectors can be chosen.
      count: largest number of steps.
      ridge: `λ`.
      tolerance: the pursuit stops when `‖r‖` is at most this fraction of `‖b‖`.

    Source: Pati, Rezaiifar and Krishnaprasad, "Orthogonal matching pursuit", 1993,
      https://doi.org/10.1109/ACSSC.1993.342465; with `λ`: Killamsetty et al., "GRAD-MATCH", 2021,
      https://arxiv.org/abs/2103.00123, Algorithm 2.

    >>> g = jnp.array([[1.0, 0], [0, 1], [1, 1], [-1, 2]])
    >>> (100 * pursue(g, g.sum(0), jnp.ones(4, bool), 2, ridge=0.5)[0]).round()
    Array([  0.,   0., 161.,  98.], dtype=float32)
    """
    dot = partial(jnp.matmul, precision="highest")
    point = jnp.where(allowed[:, None], point, 0.0)  # others may not be finite
    n, size, place = point.shape[0], jnp.linalg.norm(target), jnp.arange(point.shape[0])
    aimed = dot(point, target)

    def step(_, carry):
        factor, order, joined, weight, left = carry
        residual = target - dot(point.T, weight)
        new = jnp.where(left, jnp.abs(dot(point, residual)), -jnp.inf).argmax()
        wanted = left.any() & (jnp.linalg.norm(residual) > tolerance * size)
        column = jnp.where(place < joined, dot(point, point[new])[order], 0.0)
        row = solve_triangular(factor, column, lower=True)
        whole = dot(point[new], point[new]) + ridge
        rest = whole - dot(row, row)  # Schur complement
        joins = wanted & (rest > DEPENDENT * whole)
        grown = factor.at[joined].set(row + jnp.where(place == joined, jnp.sqrt(jnp.maximum(rest, 0.0)), 0.0))
        factor, order = jnp.where(joins, grown, factor), jnp.where(joins, order.at[joined].set(new), order)
        joined = joined + joins
        inside = place < joined
        half = solve_triangular(factor, jnp.where(inside, aimed[order], 0.0), lower=True)
        solved = solve_triangular(factor, half, lower=True, trans=1)
        weight = jnp.zeros_like(aimed).at[order].add(jnp.where(inside, solved, 0.0))
        return factor, order, joined, weight, left & ~((place == new) & wanted)

    none = jnp.zeros((), jnp.int32)
    start = jnp.eye(n, dtype=point.dtype), jnp.zeros(n, jnp.int32), none, jnp.zeros(n, point.dtype), allowed
    _, order, joined, weight, _ = jax.lax.fori_loop(0, count, step, start)
    return weight, jnp.zeros(n, bool).at[jnp.where(place < joined, order, n)].set(True, mode="drop")
