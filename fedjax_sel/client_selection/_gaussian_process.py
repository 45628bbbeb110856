"""The Gaussian process of FedCor: loss changes that are correlated between clients, with covariance `XᵀX + σ²I`.

`X` has few rows, so that nothing here needs an N x N matrix: with `A = XXᵀ + σ²I`, `z = A⁻¹Xr`, the matrix inversion
lemma gives `rᵀ(XᵀX + σ²I)⁻¹r = ‖r - Xᵀz‖²/σ² + ‖z‖²` and the determinant lemma `det = σ^(2(N-K)) det A`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.types import Scalar


def log_likelihood(
    factor: Float[Array, "K N"], noise: Scalar, mean: Float[Array, "N"], changes: Float[Array, "H N"]
) -> Float[Array, "H"]:
    """Log density of each row of `changes` under the normal law of mean `mean` and covariance `XᵀX + σ²I`.

    Args:
      factor: `X`.
      noise: `σ`.
      mean: of every row.
      changes: losses' changes.
    """
    k, n = factor.shape
    residual = changes - mean[None]
    chol = jnp.linalg.cholesky(factor @ factor.T + noise**2 * jnp.eye(k))
    z = jax.scipy.linalg.cho_solve((chol, True), factor @ residual.T)
    rest = residual - z.T @ factor
    quadratic = (rest**2).sum(1) / noise**2 + (z**2).sum(0)
    determinant = 2 * jnp.log(jnp.diagonal(chol)).sum() + 2 * (n - k) * jnp.log(noise)
    return -0.5 * (quadratic + determinant + n * jnp.log(2 * jnp.pi))


def fit(
    factor: Float[Array, "K N"],
    noise: Scalar,
    changes: Float[Array, "H N"],
    weight: Float[Array, "H"],
    steps: Int[Array, ""],
    learning_rate: Scalar,
) -> Float[Array, "K N"]:
    """`X` after `steps` of Adam on the weighted negative log likelihood, the mean being the weighted mean.

    Args:
      factor: where to begin.
      noise: `σ`, fixed.
      changes: losses' changes, a row a round.
      weight: of each row; 0 where there is none.
      steps: of the optimiser.
      learning_rate: of Adam.
    """
    mean = weight @ changes / jnp.maximum(weight.sum(), jnp.finfo(jnp.float32).tiny)
    optimiser = optax.adam(learning_rate)

    def loss(factor):
        return -weight @ log_likelihood(factor, noise, mean, changes)

    def step(_, carry):
        factor, moments = carry
        change, moments = optimiser.update(jax.grad(loss)(factor), moments)
        return optax.apply_updates(factor, change), moments

    return jax.lax.fori_loop(0, steps, step, (factor, optimiser.init(factor)))[0]


def greedy(
    factor: Float[Array, "K N"],
    noise: Scalar,
    weight: Float[Array, "N"],
    discount: Float[Array, "N"],
    available: Bool[Array, "N"],
    m: int,
) -> tuple[Int[Array, "m"], Float[Array, "m"]]:
    """`m` clients one after the other, each the one whose training is expected to lower the total loss most.

    The next is `argmax_k α_k Σ_i p_i Σ_ik / sqrt(Σ_kk)`; the covariance is then conditioned on it,
    `Σ ← Σ - Σ_:k Σ_k: / Σ_kk`. Among those not chosen it stays of the form `XᵀCX + σ²I`, `C ← C - Cx_k x_kᵀC / Σ_kk`
    from `C = I`, and one that was chosen varies no more. So its diagonal, `pᵀΣ` and `C` are kept of it.

    Args:
      factor, noise: of the covariance.
      weight: `p`.
      discount: `α`.
      available: who can be chosen.
      m: how many.

    Returns:
      Who, and the score of each when it was chosen; `-inf` where nobody was left.
    """
    n = factor.shape[1]

    def choose(j, carry):
        diagonal, sums, core, varies, left, chosen, scores = carry
        sure = diagonal > 1e-6 * start
        score = jnp.where(
            left, jnp.where(sure, discount * sums / jnp.sqrt(jnp.where(sure, diagonal, 1.0)), 0.0), -jnp.inf
        )
        k = jnp.argmax(score)
        is_k, towards = jnp.arange(n) == k, core @ factor[:, k]
        scale = 1 / jnp.sqrt(jnp.where(sure[k], diagonal[k], jnp.inf))
        column = jnp.where(varies, towards @ factor + noise**2 * is_k, 0.0) * scale
        return (
            diagonal - column**2,
            sums - column * (weight @ column),
            core - jnp.outer(towards, towards) * scale**2,
            varies & ~is_k,
            left & ~is_k,
            chosen.at[j].set(k),
            scores.at[j].set(score[k]),
        )

    start = (factor**2).sum(0) + noise**2
    sums = (factor @ weight) @ factor + noise**2 * weight
    everyone = jnp.eye(factor.shape[0]), jnp.ones(n, bool), available
    nobody = jnp.zeros(m, jnp.int32), jnp.full(m, -jnp.inf)
    *_, chosen, scores = jax.lax.fori_loop(0, m, choose, (start, sums, *everyone, *nobody))
    return chosen, scores
