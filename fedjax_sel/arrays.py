"""Operations on arrays that every layer uses.

Selection and indexing are one operation each, which `jax.numpy` traces as two to five: they are called a hundred times
a round, and what is not traced need not be lowered, mapped over seeds and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real, Shaped

from fedjax_sel.pytree import Scalar


def choose(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    """Returns one of two pytrees alike, whose leaves have the same shapes and types: `new` where `condition` holds.

    >>> choose(jnp.array(False), {"a": jnp.ones(2)}, {"a": jnp.zeros(2)})
    {'a': Array([0., 0.], dtype=float32)}
    """
    return jax.tree.map(lambda a, b: jax.lax.select(condition, jnp.asarray(a), jnp.asarray(b)), new, old)


def run_if(due: Bool[Array, ""], compute: Callable[[], Any], otherwise: float = 0) -> Any:
    """Returns the result of `compute` if it is due, which else does not run; otherwise a number, in its shapes.

    >>> run_if(jnp.array(False), lambda: {"loss": jnp.ones(2)}, jnp.nan)
    {'loss': Array([nan, nan], dtype=float32)}
    """
    like = jax.eval_shape(compute)
    return jax.lax.cond(due, compute, lambda: jax.tree.map(lambda a: jnp.full(a.shape, otherwise, a.dtype), like))


def expand(array: Any, like: Any) -> Any:
    """Returns an array with axes of length 1 appended until it has as many axes as `like`, on the device or the host.

    >>> expand(jnp.ones(3), jnp.ones((3, 4, 5))).shape
    (3, 1, 1)
    """
    return array.reshape(array.shape + (1,) * (like.ndim - array.ndim))


def add_weighted(weight: Real[Array, "m"], leaf: Shaped[Array, "m ..."]) -> Shaped[Array, "..."]:
    """Returns the weighted sum over the first axis, without the rounding of accelerators' products.

    These would round weights and numbers to 11 bits (TF32) or 8 (bfloat16), so that a mean of equal numbers is another.

    >>> add_weighted(jnp.array([0.25, 0.75]), jnp.array([[1.0, 2.0], [3.0, 2.0]]))
    Array([2.5, 2. ], dtype=float32)
    """
    return jnp.tensordot(weight, leaf, 1, precision="highest")


def keep_types(new: Any, old: Any) -> Any:
    """Returns a pytree with the floating types of another, which products with a float32 array would have widened.

    >>> keep_types(jnp.ones(2), jnp.ones(2, jnp.bfloat16)).dtype
    dtype(bfloat16)
    """

    def keep(a, b):
        dtype = getattr(b, "dtype", None)
        both = all(jnp.issubdtype(getattr(one, "dtype", None) or type(one), jnp.floating) for one in (a, b))
        return jnp.asarray(a).astype(dtype) if both and dtype is not None else a

    return jax.tree.map(keep, new, old)


def widen(tree: Any) -> Any:
    """Returns arrays of at least 32 bits.

    >>> widen(jnp.ones(2, jnp.bfloat16)).dtype
    dtype('float32')
    """
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def wide_zeros(tree: Any, *axes: int) -> Any:
    """Returns zeros of at least 32 bits in the shapes of a pytree, each with more axes in front.

    >>> wide_zeros(jnp.ones(2, jnp.bfloat16), 3).shape
    (3, 2)
    """
    return jax.tree.map(lambda leaf: jnp.zeros((*axes, *leaf.shape), jnp.promote_types(leaf.dtype, jnp.float32)), tree)


ROUNDING = 2.0**-22
"""Bound on the relative error of a product of two rounded float32 numbers, one of which is itself a product."""


def multiply_share(fraction: Scalar, count: Int[Array, ""]) -> Float[Array, ""]:
    """Returns `fraction · count`, or the multiple of 1/2 from which it differs only by rounding.

    In float32, 0.3 is slightly more than 0.3, but 0.3 · 15 should be 4.5.
    """
    product = fraction * count
    half = jnp.round(2 * product) / 2
    return jnp.where(jnp.abs(product - half) <= ROUNDING * product, half, product)


def floor_share(fraction: Scalar, count: Int[Array, ""]) -> Int[Array, ""]:
    """Returns `floor(fraction · count)`, without rounding errors in the product (`multiply_share`)."""
    return jnp.floor(multiply_share(fraction, count)).astype(jnp.int32)


def stack_trees(trees: Sequence[Any]) -> Any:
    """Returns one pytree, whose leaves have a new first axis, from several of the same structure.

    >>> stack_trees([{"w": jnp.zeros(2)}, {"w": jnp.ones(2)}])["w"].tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def take(array: Shaped[Array, "n ..."], index: Int[Array, "..."]) -> Shaped[Array, "..."]:
    """Returns the elements at `index` of the first axis; the first or the last for an index beyond either end.

    >>> take(jnp.array([5, 6, 7]), jnp.array([-1, 1, 9]))
    Array([5, 6, 7], dtype=int32)
    """
    return jnp.asarray(array).at[index].get(mode="clip", wrap_negative_indices=False)


def fill_to(array: Shaped[Array, "..."], length: int, axis: int = 0) -> Shaped[Array, "..."]:
    """Returns an array with zeros appended until an axis is this long.

    >>> fill_to(jnp.array([5, 6]), 3)
    Array([5, 6, 0], dtype=int32)
    """
    padding = [(0, (length - array.shape[axis]) * (place == axis), 0) for place in range(array.ndim)]
    return jax.lax.pad(array, jnp.zeros((), array.dtype), padding)


def divide_in_proportion(size: Real[np.ndarray, "N"], total: int, *, least: int = 0) -> Int[np.ndarray, "N"]:
    """Returns integers of at least `least` that sum to `total`, in proportion to `size` by largest remainder.

    >>> divide_in_proportion(np.array([1, 1, 8]), 5, least=1)
    array([1, 1, 3])
    """
    exact = (total - least * len(size)) * size / size.sum()
    count = np.floor(exact + 1e-9).astype(int)
    count[np.argsort(count - exact, kind="stable")[: total - least * len(size) - count.sum()]] += 1
    return count + least
