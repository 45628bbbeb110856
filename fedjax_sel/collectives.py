"""Communication, inside a compiled program, between the mesh devices that share the clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array

from fedjax_sel.arrays import fill_to
from fedjax_sel.types import Variables

CLIENTS = "clients"
"""The mesh axis of these devices."""


def count_devices() -> int:
    """Returns the number of devices that share the clients; 1 in a program that is not divided."""
    try:
        return jax.lax.axis_size(CLIENTS)
    except NameError:  # no such axis
        return 1


def map_parts(f: Callable[..., Any], whole: Any, *rest: Any, devices: Sequence[Any]) -> Any:
    """Returns `f(whole, *rest)`, where `f` keeps a leading axis, which is divided among devices of this process.

    Each device has all of `rest`. With fewer than two devices, nothing is divided.
    """
    if len(devices) < 2:
        return f(whole, *rest)
    length, axes = jax.tree.leaves(whole)[0].shape[0], (jax.sharding.AxisType.Auto,)

    def mine(whole, *rest):
        return gather(f(share(whole, len(devices)), *rest), length)

    return jax.shard_map(
        mine,
        mesh=jax.make_mesh((len(devices),), (CLIENTS,), axes, devices=devices),
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(),
        check_vma=False,  # what is gathered agrees on all devices
    )(whole, *rest)


def share(whole: Any, among: int, axis: int = 0) -> Any:
    """Returns this device's part of an axis that is divided among the clients' devices, padded with zeros."""

    def mine(leaf):
        size = -(-leaf.shape[axis] // among)
        filled = fill_to(leaf, among * size, axis)
        return jax.lax.dynamic_slice_in_dim(filled, jax.lax.axis_index(CLIENTS) * size, size, axis)

    return jax.tree.map(mine, whole)


def gather(part: Any, length: int, axis: int = 0) -> Any:
    """Concatenates the parts of all clients' devices, without their padding."""

    def all_of(leaf):
        together = jax.lax.all_gather(leaf, CLIENTS, axis=axis, tiled=True)
        return jax.lax.slice_in_dim(together, 0, length, axis=axis)

    return jax.tree.map(all_of, part)


def unite(mine: Any) -> Any:
    """Returns arrays of which each of the clients' devices has other entries, and 0 in place of the others'."""

    def all_of(leaf):
        flag = jnp.isdtype(leaf.dtype, "bool")
        return jax.lax.psum(leaf.astype(jnp.int32) if flag else leaf, CLIENTS).astype(leaf.dtype)

    return jax.tree.map(all_of, mine)


def find_best(mine: tuple) -> tuple:
    """Returns, of what each of the clients' devices has, that with the largest first entry; the first of equals.

    All entries are of types in `WORDS`, and the first is a number; they are one message.
    """
    of_all = jax.lax.all_gather(jnp.concatenate([as_word(leaf).ravel() for leaf in mine]), CLIENTS)
    best = of_all[jnp.argmax(from_word(of_all[:, 0], mine[0].dtype))]
    ends = np.cumsum([leaf.size for leaf in mine])
    parts = zip(mine, jnp.split(best, ends[:-1]), strict=True)
    return tuple(from_word(words.reshape(leaf.shape), leaf.dtype) for leaf, words in parts)


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
