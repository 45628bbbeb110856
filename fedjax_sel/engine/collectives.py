"""Communication, inside a compiled program, between the mesh devices that share a cohort's clients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from fedjax_sel.types import Variables

CLIENTS = "clients"
"""The mesh axis of these devices."""


def share(part: Any, among: int) -> Any:
    """Returns this device's part of a leading axis that is divided among the clients' devices, padded with zeros."""

    def mine(leaf):
        size = -(-leaf.shape[0] // among)
        filled = jnp.concatenate([leaf, jnp.zeros((among * size - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)])
        return jax.lax.dynamic_slice_in_dim(filled, jax.lax.axis_index(CLIENTS) * size, size)

    return jax.tree.map(mine, part)


def gather(part: Any, length: int) -> Any:
    """Concatenates the parts of all clients' devices, without their padding."""
    return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, CLIENTS, tiled=True)[:length], part)


def exchange(total: Variables, part: Any, length: int) -> tuple[Variables, Any]:
    """Returns the sum of the totals of all clients' devices, and their parts as `gather` does.

    Each message makes every device wait for the slowest, so arrays of one number per client travel with the total: as
    two halves of 16 bits, to which the other devices' zeros are added exactly in float32.
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
"""Types that fit in a 32-bit word."""


def as_word(numbers: Array) -> Array:
    """Returns the bits of each number."""
    numbers = numbers.astype(jnp.uint32) if jnp.isdtype(numbers.dtype, "bool") else numbers
    return jax.lax.bitcast_convert_type(numbers, jnp.uint32)


def from_word(words: Array, dtype: Any) -> Array:
    """Returns the numbers with these bits."""
    return words != 0 if jnp.isdtype(dtype, "bool") else jax.lax.bitcast_convert_type(words, dtype)
