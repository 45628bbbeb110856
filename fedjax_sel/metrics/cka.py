"""Similarity of two representations of the same examples: centred kernel alignment (CKA)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float


def linear_cka(x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "n q"]) -> float:
    """Returns linear CKA, `‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖)` of centred columns, in Frobenius norms; NaN if one is constant.

    It is 1 if one is a rotation, a scaling or a translation of the other. It is computed from products of examples or
    of columns, whichever are fewer.

    Args:
      x, y: representations of the same `n` examples by two layers.

    Source: Kornblith et al., "Similarity of Neural Network Representations Revisited", 2019,
    https://arxiv.org/abs/1905.00414, section 3.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> round(linear_cka(x, 3 * x[:, ::-1] + 1), 6)
    1.0
    """
    check_examples(x, y)
    x, y = (np.asarray(a, np.float64) for a in (x, y))
    if any(is_constant(a) for a in (x, y)):
        return float("nan")
    x, y = (a - a.mean(0) for a in (x, y))
    if len(x) < max(x.shape[1], y.shape[1]):
        k, other = x @ x.T, y @ y.T
        both, own = (k * other).sum(), np.linalg.norm(k) * np.linalg.norm(other)
    else:
        both, own = np.linalg.norm(y.T @ x) ** 2, np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(both / own)


def is_constant(x: Float[np.ndarray, "n p"]) -> bool:
    """Returns whether all examples have the same representation.

    >>> is_constant(np.full((7, 3), 0.1))
    True
    """
    return bool((x == x[:1]).all())


def kernel_cka(
    kernels: Float[np.ndarray, "k b b"], others: Float[np.ndarray, "j b b"] | None = None
) -> Float[np.ndarray, "k j"]:
    """Returns linear CKA of each pair of representations, from products of centred examples; NaN where one is 0.

    Args:
      kernels: `X Xᵀ` of each representation, its columns centred.
      others: those of the representations to pair with; None: the same.

    >>> x = np.array([[[-1.0], [0.0], [1.0]], [[1.0], [-2.0], [1.0]]])  # two representations of three examples
    >>> kernel_cka(x @ x.transpose(0, 2, 1))
    array([[1., 0.],
           [0., 1.]])
    """
    mine = kernels.reshape(len(kernels), -1).astype(np.float64)
    theirs = mine if others is None else others.reshape(len(others), -1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        one, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (mine, theirs))
    return one @ other.T


def minibatch_cka(batches: Iterable[tuple[Float[np.ndarray, "b p"], Float[np.ndarray, "b q"]]]) -> float:
    """Returns linear CKA from minibatches; each of its three terms is a mean of unbiased estimates (`hsic`).

    The expectation of these terms does not depend on the batch size, so the examples need not be in memory together.
    The result can be slightly above 1 or below 0; it is NaN if a representation is constant.

    Args:
      batches: representations of the same examples by two layers, at least 4 examples each.

    Raises:
      ValueError: a batch has fewer than 4 examples, or its two arrays are not matrices over the same examples.

    Source: Nguyen, Raghu and Kornblith, "Do Wide and Deep Networks Learn the Same Things?", 2021,
    https://arxiv.org/abs/2010.15327, its minibatch CKA.

    >>> x = np.random.default_rng(0).normal(size=(20, 3))
    >>> round(minibatch_cka((batch, 2 * batch) for batch in np.split(x, 4)), 6)
    1.0
    """
    sums, squares = np.zeros(3), np.zeros(2)
    for x, y in batches:
        check_examples(x, y)
        k, other = (np.asarray(a, np.float64) @ np.asarray(a, np.float64).T for a in (x, y))
        sums += hsic(k, other), hsic(k, k), hsic(other, other)
        squares += (k**2).mean(), (other**2).mean()
    own = drop_rounding(sums[1:], squares)
    return float(sums[0] / np.sqrt(own[0] * own[1]))


ROUNDING = 1e-11
"""Rounding makes a constant representation seem to vary, by less than this fraction of its mean square.

Representations that vary by less than 0.2 % of their size, which float32 products hardly resolve, count as constant.
"""


def drop_rounding(own: Float[np.ndarray, "k"], squares: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """Returns what representations have in common with themselves; NaN where it is only rounding.

    Args:
      own: sums of unbiased estimates.
      squares: sums of the mean squares of the same products of examples.
    """
    return np.where(own > ROUNDING * squares, own, np.nan)


def minibatch_kernel_cka(kernels: Float[np.ndarray, "k B b b"]) -> Float[np.ndarray, "k k"]:
    """Returns minibatch CKA of each pair of representations, from products of examples; NaN where one is constant.

    It computes what `minibatch_cka` returns for each pair, all at once.

    Args:
      kernels: `X Xᵀ` of each representation and batch of at least 4 examples; not centred.

    >>> x = np.random.default_rng(0).normal(size=(2, 3, 5, 4))  # two representations of three batches of five examples
    >>> found = minibatch_kernel_cka(x @ x.swapaxes(-1, -2))
    >>> abs(found[0, 1] - minibatch_cka(zip(x[0], x[1]))) < 1e-12
    np.True_
    """
    count, _, n, _ = kernels.shape
    if n < 4:
        raise ValueError(f"a batch of {n} examples; an unbiased estimate needs at least 4")
    sums, squares = np.zeros((count, count)), np.zeros(count)
    for batch in kernels.swapaxes(0, 1):
        k = batch.astype(np.float64) * (1 - np.eye(n))
        flat, total, rows = k.reshape(count, -1), k.sum((1, 2)), k.sum(1)
        sums += flat @ flat.T + np.outer(total, total) / ((n - 1) * (n - 2)) - 2 / (n - 2) * rows @ rows.T
        squares += (flat**2).sum(1)
    own = drop_rounding(np.diagonal(sums), squares)
    return sums / np.sqrt(own[:, None] * own)


def hsic(k: Float[np.ndarray, "b b"], other: Float[np.ndarray, "b b"]) -> float:
    """Returns an unbiased estimate of the Hilbert-Schmidt independence criterion of two kernels over the same examples.

    Source: Song et al., "Feature Selection via Dependence Maximization", 2012,
    https://jmlr.org/papers/v13/song12a.html, its unbiased estimator.

    >>> x = np.arange(4.0)
    >>> round(hsic(np.outer(x, x), np.outer(x, x)), 6)
    2.166667
    """
    n = len(k)
    if n < 4:
        raise ValueError(f"a batch of {n} examples; an unbiased estimate needs at least 4")
    k, other = k - np.diag(np.diag(k)), other - np.diag(np.diag(other))
    trace = (k * other).sum()
    total = k.sum() * other.sum() / ((n - 1) * (n - 2))
    return float((trace + total - 2 / (n - 2) * (k.sum(0) @ other.sum(0))) / (n * (n - 3)))


def check_examples(x: np.ndarray, y: np.ndarray) -> None:
    """Raises `ValueError` unless both are matrices over the same examples."""
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise ValueError(f"representations have shapes {x.shape} and {y.shape}; needed are [n, p] and [n, q]")
