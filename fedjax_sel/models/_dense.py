"""Affine maps whose gradients are fast on a CPU.

A kernel's gradient contracts the first axis of both of its factors, the inputs and the gradient of the outputs. XLA's
fast products on a CPU contract the last axis of the first factor, so the narrower of the two is transposed in memory.

If the kernel outgrows the caches while a batch has few examples, the gradient, as a product, is written to memory and
read again to move the kernel. As a sum of one outer product an example it needs no memory of its own: XLA computes each
number where the kernel moves.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

__all__ = ["Dense", "multiply"]

EXAMPLES, BYTES = 16, 2**20
"""The most examples, and the fewest bytes of a kernel, of which the gradient is a sum of outer products.

Rounds of `conv_dropout` on batches of 10 took 0.86 of the time; steps on 32 examples took longer
(`benchmarks/NOTES.md`).
"""


def multiply(lhs: Array, rhs: Array, dimension_numbers: Any, precision: Any = None) -> Array:
    """Returns `jax.lax.dot_general` of a batch and a kernel, whose gradients are fast on a CPU.

    A batch of one keeps `dot_general`, so that the operations that are counted for the bill do not change.

    Args:
      lhs, rhs, dimension_numbers, precision: as `flax.linen.Dense` gives them to its `dot_general`.
    """
    is_affine = lhs.ndim == rhs.ndim == 2 and dimension_numbers == (((1,), (0,)), ((), ()))
    if not is_affine or len(lhs) <= 1 or jax.default_backend() != "cpu":
        return lax.dot_general(lhs, rhs, dimension_numbers, precision)
    return product(lhs, rhs, precision)


class Dense(nn.Dense):
    """`flax.linen.Dense` with products by `multiply`; its fields and its parameters' names and shapes are the same."""

    dot_general: Any = multiply


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def product(lhs: Float[Array, "b i"], rhs: Float[Array, "i o"], precision: Any) -> Float[Array, "b o"]:
    """Returns `lhs @ rhs`."""
    return jnp.matmul(lhs, rhs, precision=precision)


@functools.partial(product.defjvp, symbolic_zeros=True)
def derive(precision, factors, changes):
    """Returns the product, and how it changes with the factors that change."""
    (lhs, rhs), (of_lhs, of_rhs) = factors, changes
    parts = []
    if not isinstance(of_lhs, SymbolicZero):
        parts.append(jnp.matmul(of_lhs, rhs, precision=precision))
    if not isinstance(of_rhs, SymbolicZero):
        parts.append(multiply_change(lhs, of_rhs, precision))
    return product(lhs, rhs, precision), functools.reduce(operator.add, parts)


def multiply_change(lhs: Float[Array, "b i"], of_rhs: Float[Array, "i o"], precision: Any) -> Float[Array, "b o"]:
    """Returns `lhs @ of_rhs`, in the form whose transpose is the kernel's gradient as it is computed fastest."""
    inputs, outputs = of_rhs.shape
    if is_faster_in_sums(lhs, of_rhs):
        return jnp.stack([(row[:, None] * of_rhs).sum(0) for row in lhs])
    # Without the barriers, XLA would fold the transposes into the gradient's product, and compute it more slowly.
    if inputs <= outputs:
        by_input = lax.optimization_barrier(lhs.T)
        return lax.dot_general(by_input, of_rhs, (((0,), (0,)), ((), ())), precision)
    by_output = lax.dot_general(lax.optimization_barrier(of_rhs.T), lhs, (((1,), (1,)), ((), ())), precision)
    return lax.optimization_barrier(by_output).T


def is_faster_in_sums(lhs: Float[Array, "b i"], rhs: Float[Array, "i o"]) -> bool:
    """Returns whether the kernel's gradient is faster as a sum of outer products than as a product.

    In 16 bits every addition of that sum would be rounded.
    """
    return rhs.dtype.itemsize >= 4 and len(lhs) <= EXAMPLES and rhs.size * rhs.dtype.itemsize >= BYTES
