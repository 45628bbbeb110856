"""Selection and indexing as one operation each, which `jax.numpy` traces as two to five.

They are called a hundred times a round, and what is not traced need not be lowered, mapped over seeds and compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped


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


def take(array: Shaped[Array, "n ..."], index: Int[Array, "..."]) -> Shaped[Array, "..."]:
    """Returns the elements at `index` of the first axis; the first or the last for an index beyond either end.

    >>> take(jnp.array([5, 6, 7]), jnp.array([-1, 1, 9]))
    Array([5, 6, 7], dtype=int32)
    """
    return jnp.asarray(array).at[index].get(mode="clip", wrap_negative_indices=False)
