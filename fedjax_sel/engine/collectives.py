"""Communication between the devices of a mesh that hold clients, inside a compiled program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from fedjax_sel.types import Variables

CLIENTS = "clients"
"""Their axis of the mesh."""


def share(part: Any, among: int) -> Any:
    """The part of one device of a leading axis that is divided among the clients' devices, filled up with zeros."""

    def mine(leaf):
        size = -(-leaf.shape[0] // among)
        filled = jnp.concatenate([leaf, jnp.zeros((among * size - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)])
        return jax.lax.dynamic_slice_in_dim(filled, jax.lax.axis_index(CLIENTS) * size, size)

    return jax.tree.map(mine, part)


def gather(part: Any, length: int) -> Any:
    """The parts of all clients' devices behind each other, without what they were filled up with."""
    return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, CLIENTS, tiled=True)[:length], part)


def exchange(total: Variables, part: Any, length: int) -> tuple[Variables, Any]:
    """The sum of all clients' devices' totals, and their parts as `gather` has them.

    Each message makes every device wait for the slowest, so arrays of one number a client travel with the total: as
    two halves of 16 bits, to which float32 adds the other devices' zeros exactly.
    """
    leaves, tree = jax.tree.flatten(part)
    short = [i for i, leaf in enumerate(leaves) if leaf.ndim == 1 and leaf.dtype in WORDS]
    words = jnp.stack([as_word(leaves[i]) for i in short], axis=1)
    mine = jnp.concatenate([words & 0xFFFF, words >> 16], axis=1).astype(jnp.float32)
    size, columns = mine.shape
    of_all = jnp.zeros((size * jax.lax.axis_size(CLIENTS), columns))
    of_all = jax.lax.dynamic_update_slice_in_dim(of_all, mine, jax.lax.axis_index(CLIENTS) * size, axis=0)
    total, of_all = jax.lax.psum((total, of_all), CLIENTS)
    low, high = jnp.split(of_all[:length].astype(jnp.uint32), 2, axis=1)
    for leaf, column in zip(short, (low | high << 16).T, strict=True):
        leaves[leaf] = from_word(column, leaves[leaf].dtype)
    rest = [i for i in range(len(leaves)) if i not in short]
    for i, leaf in zip(rest, gather([leaves[i] for i in rest], length), strict=True):
        leaves[i] = leaf
    return total, tree.unflatten(leaves)


WORDS = (jnp.bool, jnp.int32, jnp.uint32, jnp.float32)
"""What fits a word of 32 bits."""


def as_word(numbers: Array) -> Array:
    """The bits of each number."""
    numbers = numbers.astype(jnp.uint32) if jnp.isdtype(numbers.dtype, "bool") else numbers
    return jax.lax.bitcast_convert_type(numbers, jnp.uint32)


def from_word(words: Array, dtype: Any) -> Array:
    """The numbers with these bits."""
    return words != 0 if jnp.isdtype(dtype, "bool") else jax.lax.bitcast_convert_type(words, dtype)
