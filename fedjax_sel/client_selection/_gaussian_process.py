"""The Gaussian process of FedCor: loss changes that are correlated between clients, with covariance `XᵀX + σ²I`.

`X` has few rows, so nothing here needs an N x N matrix: with `A = XXᵀ + σ²I` and `Σ = XᵀX + σ²I`, the matrix inversion
lemma gives `XΣ⁻¹ = A⁻¹X` and `Σ⁻¹r = (r - XᵀA⁻¹Xr) / σ²`.

Every device of a mesh selects; here, those that share the clients also share the columns of `X`, where there are many.
Then each holds `n` of the `N` columns, and they exchange sums over clients and the best of their clients.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.collectives import CLIENTS, count_devices, find_best, gather, share
from fedjax_sel.pytree import Scalar

BLOCK = 16_384
"""Clients in a block. A CPU copies what it multiplies; beyond 32 MiB, it allocates new memory for each copy."""

MANY = 32_768
"""The number of clients above which devices share them: each choice then waits for two messages of 10 to 50 µs."""


def count_parts(n: int) -> int:
    """Returns the number of devices among which `n` clients are divided."""
    return count_devices() if n > MANY else 1


def add_parts(total: Array, parts: int) -> Array:
    """Returns the sum of what the devices have."""
    return total if parts == 1 else jax.lax.psum(total, CLIENTS)


def multiply_rows(rows: Float[Array, "R n"], k: int) -> Float[Array, "k R"]:
    """Returns the products of the first `k` rows with all rows, as a sum over blocks of clients."""
    whole = rows.shape[1] // BLOCK
    rest = rows[:, whole * BLOCK :]

    def add(i, total):
        block = jax.lax.dynamic_slice_in_dim(rows, i * BLOCK, BLOCK, axis=1)
        return total + block[:k] @ block.T

    return jax.lax.fori_loop(0, whole, add, rest[:k] @ rest.T) if whole else rest[:k] @ rest.T


def gradient(
    rows: Float[Array, "R n"], noise: Scalar, weight: Float[Array, "H"], parts: int = 1
) -> Float[Array, "K n"]:
    """Returns `X (Σ⁻¹ Rᵀ diag(w) R Σ⁻¹ - Σ_h w_h Σ⁻¹)`, the gradient w.r.t. `X` of the draws' weighted log density.

    Args:
      rows: `X`, and below it `R`, one draw per row, minus the mean: one product with both is faster than two.
      noise: `σ`.
      weight: `w`.
      parts: devices that share the clients.
    """
    k = len(rows) - len(weight)
    product = add_parts(multiply_rows(rows, k), parts)
    chol = jnp.linalg.cholesky(product[:, :k] + noise**2 * jnp.eye(k))
    solved = functools.partial(jax.scipy.linalg.cho_solve, (chol, True))
    z, inverse = solved(product[:, k:]), solved(jnp.eye(k))  # K columns: solving for N takes longer
    of_draws = z * weight[None] / noise**2
    return jnp.concatenate([-of_draws @ z.T - weight.sum() * inverse, of_draws], axis=1) @ rows


def fit(
    factor: Float[Array, "K N"],
    noise: Scalar,
    changes: Float[Array, "H N"],
    weight: Float[Array, "H"],
    steps: Int[Array, ""],
    learning_rate: Scalar,
) -> Float[Array, "K N"]:
    """Returns `X` after `steps` steps of Adam on the weighted negative log likelihood around the weighted mean.

    Args:
      factor: the initial `X`.
      noise: `σ`, fixed.
      changes: changes of the losses, one row for each draw.
      weight: of each draw; 0 where there is none.
      steps: steps of Adam.
      learning_rate: of Adam.
    """
    k, n = factor.shape
    parts = count_parts(n)
    if parts > 1:
        factor, changes = share((factor, changes), parts, axis=1)
    mean = weight @ changes / jnp.maximum(weight.sum(), jnp.finfo(jnp.float32).tiny)
    optimizer, rows = optax.adam(learning_rate), jnp.concatenate([factor, changes - mean[None]])

    def step(_, carry):
        rows, moments = carry
        change, moments = optimizer.update(-gradient(rows, noise, weight, parts), moments)
        return rows.at[:k].add(change), moments

    fitted = jax.lax.fori_loop(0, steps, step, (rows, optimizer.init(factor)))[0][:k]
    return fitted if parts == 1 else gather(fitted, n, axis=1)


def greedy(
    factor: Float[Array, "K N"],
    noise: Scalar,
    weight: Float[Array, "N"],
    discount: Float[Array, "N"],
    available: Bool[Array, "N"],
    m: int,
) -> tuple[Int[Array, "m"], Float[Array, "m"]]:
    """Returns `m` clients, chosen one by one as the client whose training should lower the total loss most.

    The next client is `argmax_k α_k Σ_i p_i Σ_ik / sqrt(Σ_kk)`; the covariance is then conditioned on it,
    `Σ ← Σ - Σ_:k Σ_k: / Σ_kk`. Over the clients not yet chosen it keeps the form `XᵀCX + σ²I`, with
    `C ← C - Cx_k x_kᵀC / Σ_kk` from `C = I`; a chosen client no longer varies. So only its diagonal, `pᵀΣ` and `C` are
    stored.

    Args:
      factor, noise: `X` and `σ` of the covariance.
      weight: `p`.
      discount: `α`.
      available: which clients can be chosen.
      m: number of clients.

    Returns:
      The clients, and the score of each when it was chosen; `-inf` where no client was left.
    """
    parts = count_parts(factor.shape[1])
    client = jnp.arange(factor.shape[1])
    if parts > 1:
        factor = share(factor, parts, axis=1)
        weight, discount, available, client = share((weight, discount, available, client), parts)

    def choose(j, carry):
        diagonal, sums, core, varies, chosen, scores = carry
        sure = diagonal > 1e-6 * start
        score = jnp.where(
            available & varies,
            jnp.where(sure, discount * sums / jnp.sqrt(jnp.where(sure, diagonal, 1.0)), 0.0),
            -jnp.inf,
        )
        at = jnp.argmax(score)
        best = score[at], client[at], factor[:, at], jnp.where(sure[at], diagonal[at], jnp.inf)
        top, k, x, variance = best if parts == 1 else find_best(best)
        is_k, towards, scale = client == k, core @ x, 1 / jnp.sqrt(variance)
        column = jnp.where(varies, towards @ factor + noise**2 * is_k, 0.0) * scale
        return (
            diagonal - column**2,
            sums - column * add_parts(weight @ column, parts),
            core - jnp.outer(towards, towards) * scale**2,
            varies & ~is_k,
            chosen.at[j].set(k),
            scores.at[j].set(top),
        )

    start = (factor**2).sum(0) + noise**2
    sums = add_parts(factor @ weight, parts) @ factor + noise**2 * weight
    nobody = jnp.eye(factor.shape[0]), jnp.ones_like(available), jnp.zeros(m, jnp.int32), jnp.full(m, -jnp.inf)
    *_, chosen, scores = jax.lax.fori_loop(0, m, choose, (start, sums, *nobody))
    return chosen, scores
