"""A sketch of a client's update in a few numbers."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from fedjax_sel.arrays import widen
from fedjax_sel.protocols import UpdateSignal
from fedjax_sel.pytree import static
from fedjax_sel.task.costs import count_numbers
from fedjax_sel.types import Update, Variables

__all__ = ["Sketch"]


class Sketch(UpdateSignal):
    """`s_b = Σ_{i: h(i) = b} σ(i) Δ_i`, `k` numbers; `h` hashes a parameter's place to one of `k`, `σ` to a sign.

    The inner product of two sketches equals that of the updates in expectation over hashes, with a variance that falls
    as `1 / k`. The hash is fixed, so sketches of all clients, rounds and runs are comparable. The server computes the
    sketch from the update it received, so it costs the client nothing.

    Attributes:
      k: length of the sketch; None: the update itself, `P` numbers, its leaves flattened one after the other.

    Source: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009,
    https://arxiv.org/abs/0902.2206, section 2.

    >>> Sketch(k=16)
    Sketch(k=16)
    """

    name: ClassVar[str] = "sketch"
    stacked: ClassVar[bool] = True

    k: int | None = static(default=64, low=1)

    def measure(self, update: Update, reference: Variables | None) -> Float[Array, "k"]:
        """Returns the sketch of one update, its leaves flattened and concatenated."""
        return sketch_tree(update.delta, self.k)


def sketch_tree(tree: Variables, k: int | None) -> Float[Array, "k"]:
    """Returns the sketch of a pytree's leaves, flattened and concatenated; all their numbers if `k` is None."""
    if k is None:
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)]).astype(jnp.float32)
    sketch, start = jnp.zeros(k, jnp.float32), 0
    for leaf in jax.tree.leaves(widen(tree)):
        bits = hash_places(start, leaf.size)
        signed = jnp.where((bits & 1) == 1, leaf.ravel(), -leaf.ravel())
        sketch += jax.ops.segment_sum(signed, ((bits >> 1) % k).astype(jnp.int32), k)
        start += leaf.size
    return sketch


def sketch_length(tree: Variables, k: int | None) -> int:
    """Returns how many numbers `sketch_tree` returns."""
    return count_numbers(tree) if k is None else k


def hash_places(start: int, count: int) -> UInt32[Array, "count"]:
    """Returns 32 mixed bits for each of `count` places from `start` on.

    Source: Appleby, MurmurHash3, 2011, the finalizer fmix32.
    """
    bits = jnp.arange(1, count + 1, dtype=jnp.uint32) + jnp.uint32(start)
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
