"""Functions that several data selectors share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.arrays import multiply_share
from fedjax_sel.pytree import Scalar
from fedjax_sel.types import PRNGKey


def keep_top(key: PRNGKey, valid: Bool[Array, "L"], fraction: Scalar, *scores: Float[Array, "L"]) -> Bool[Array, "L"]:
    """Returns a mask of the fraction of valid examples that `scores` rank first (`places`), ties broken at random."""
    noise = jax.random.uniform(key, valid.shape, jnp.float32)
    return valid & (places(valid, *scores, noise) < count_kept(valid, fraction))


def share_among_classes(
    y: Int[Array, "L"], valid: Bool[Array, "L"], count: Int[Array, ""], classes: int
) -> Int[Array, "C"]:
    """Returns `⌈count · n_c / n⌉` for each class, where `n_c` of the client's `n` examples are of that class.

    >>> share_among_classes(jnp.array([0, 0, 0, 2]), jnp.ones(4, bool), jnp.array(2), 3)
    Array([2, 0, 1], dtype=int32)
    """
    whole, rest = divide_among_classes(y, valid, count, classes)
    return whole + (rest > 0)


def share_exactly(y: Int[Array, "L"], valid: Bool[Array, "L"], count: Int[Array, ""], classes: int) -> Int[Array, "C"]:
    """Returns `count n_c / n` for each class, rounded by largest remainder to sum to `count`; the first wins ties.

    >>> share_exactly(jnp.array([0, 0, 0, 2]), jnp.ones(4, bool), jnp.array(2), 3)
    Array([2, 0, 0], dtype=int32)
    """
    whole, rest = divide_among_classes(y, valid, count, classes)
    place = jnp.argsort(jnp.argsort(-rest))
    return (whole + (place < count - whole.sum())).astype(jnp.int32)


def divide_among_classes(
    y: Int[Array, "L"], valid: Bool[Array, "L"], count: Int[Array, ""], classes: int
) -> tuple[Int[Array, "C"], Int[Array, "C"]]:
    """Returns quotient and remainder of `count n_c` and `n` for each class.

    The product of two counts may exceed the largest `int32`, but the largest `uint32` only beyond `MOST` examples.

    Raises:
      ValueError: the largest client has more examples than that.
    """
    if len(valid) > MOST:
        raise ValueError(
            f"a coreset with a share for each class divides at most {MOST:,} examples of a client; the largest client "
            f"has {len(valid):,}"
        )
    of_class, n = jax.ops.segment_sum(valid.astype(jnp.uint32), y, classes), jnp.maximum(valid.sum(), 1)
    product, by = count.astype(jnp.uint32) * of_class, n.astype(jnp.uint32)
    return (product // by).astype(jnp.int32), (product % by).astype(jnp.int32)


MOST = 65_535
"""Most examples of a client that `divide_among_classes` divides exactly."""


def scale_to_mean(weight: Float[Array, "L"], valid: Bool[Array, "L"]) -> Float[Array, "L"]:
    """Returns `w_j U / n`, where `U` of the `n` valid examples have a weight above 0.

    A client minimises the mean of the weighted losses over those `U`, which is then `Σ_j w_j ℓ_j / n`.

    >>> scale_to_mean(jnp.array([3.0, 0.0, 1.0, 0.0]), jnp.ones(4, bool))
    Array([1.5, 0. , 0.5, 0. ], dtype=float32)
    """
    return weight * ((weight > 0).sum() / jnp.maximum(valid.sum(), 1))


def count_kept(valid: Bool[Array, "L"], fraction: Scalar) -> Int[Array, ""]:
    """Returns `max(1, round(fraction · n))`, where `n` is the number of valid examples; 0 if there are none.

    The product is free of rounding errors (`multiply_share`), and halves are rounded to even, as in Python.
    """
    n = valid.sum()
    return jnp.clip(jnp.round(multiply_share(fraction, n)), 1, n).astype(jnp.int32)


def places(valid: Bool[Array, "k"], *scores: Float[Array, "k"]) -> Int[Array, "k"]:
    """Returns each entry's place, from 0, in lexicographic order: valid ones first, then by each score, highest first.

    A later score counts only among entries whose earlier scores are equal. NaN comes after all numbers.

    >>> valid = jnp.array([True, True, False, True])
    >>> places(valid, jnp.array([0.0, 0.0, 9.0, 1.0]), jnp.array([-5.0, -3.0, 0.0, -9.0]))
    Array([2, 1, 3, 0], dtype=int32)
    """
    order = jnp.lexsort((*(-score for score in reversed(scores)), ~valid))
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
