"""The product of an affine map whose kernel outgrows the caches while a batch has few examples.

The gradient of such a kernel, as a product of matrices, is written to memory and read again to move the kernel. As a
sum of one outer product an example it needs no memory of its own: XLA computes each number where the kernel moves.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["multiply"]

EXAMPLES, BYTES = 16, 2**20
"""The most examples, and the fewest bytes of a kernel, of which the gradient is a sum of outer products.

Rounds of `conv_dropout` on batches of 10 took 0.86 of the time; steps on 32 examples took longer
(`benchmarks/NOTES.md`).
"""


def multiply(lhs: Array, rhs: Array, dimension_numbers: Any, precision: Any = None) -> Array:
    """Returns `jax.lax.dot_general` of a batch and a kernel, whose gradient of a large kernel takes no memory.

    A single example, of which the operations are counted for the bill, keeps the product.

    Args:
      lhs, rhs, dimension_numbers, precision: as `flax.linen.Dense` gives them to its `dot_general`.
    """
    is_affine = lhs.ndim == rhs.ndim == 2 and dimension_numbers == (((1,), (0,)), ((), ()))
    if not is_affine or not is_faster_in_sums(lhs, rhs):
        return lax.dot_general(lhs, rhs, dimension_numbers, precision)
    return product(lhs, rhs, precision)


def is_faster_in_sums(lhs: Float[Array, "b i"], rhs: Float[Array, "i o"]) -> bool:
    """Returns whether the kernel's gradient is faster as a sum of outer products."""
    few, large = 1 < len(lhs) <= EXAMPLES, rhs.size * rhs.dtype.itemsize >= BYTES
    return jax.default_backend() == "cpu" and few and large


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def product(lhs: Float[Array, "b i"], rhs: Float[Array, "i o"], precision: Any) -> Float[Array, "b o"]:
    """Returns `lhs @ rhs`."""
    return jnp.matmul(lhs, rhs, precision=precision)


def forwards(lhs, rhs, precision):
    """Returns the product, and both factors for the backward pass."""
    return product(lhs, rhs, precision), (lhs, rhs)


def backwards(precision, kept, given):
    """Returns the gradients of both factors."""
    lhs, rhs = kept
    of_examples = [jnp.outer(x, y) for x, y in zip(lhs, given, strict=True)]
    return jnp.matmul(given, rhs.T, precision=precision), functools.reduce(operator.add, of_examples)


product.defvjp(forwards, backwards)
