"""Random orders of a client's examples: one sort of 32-bit numbers that carry a random value and a place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt32

from fedjax_sel.types import PRNGKey

NOISE = 9
"""Bits of the 32 that are not used for the order: with the other bits, two places of a client rarely share a value."""

MOST_DIGITS = 11
"""Most binary digits of a place that leave enough for its noise: beyond 2048 places, the two stay separate."""

MOST_SLOT_DIGITS = 15
"""Most binary digits of a slot that leave enough for its noise, where ties are broken at random."""


def shuffle_epochs(key: PRNGKey, mask: Bool[Array, "L"], epochs: int) -> Int[Array, "epochs L"]:
    """Returns `epochs` random orders of the places where `mask` holds; the other places come last.

    Place `j` draws the same numbers whatever `L` is. How many of their bits are used depends on the binary digits of
    `L`: if padding adds a digit, two places whose noise then ties may be swapped. Below a thousand places this is rare.
    """
    noise = jax.vmap(lambda k: jax.random.bits(k, mask.shape, jnp.uint32))(jax.random.split(key, epochs))
    place, digits = jnp.arange(mask.shape[0], dtype=jnp.uint32), (mask.shape[0] - 1).bit_length()
    if digits > MOST_DIGITS:
        return jnp.argsort(jnp.where(mask[None], noise >> NOISE, jnp.uint32(2**32 - 1)), axis=-1)
    # One number per place, with its noise above its digits: a CPU sorts these 3 to 7 times as fast as pairs.
    above = jnp.where(mask[None], noise >> max(NOISE, digits + 1), jnp.uint32(2 ** (31 - digits)))
    return (jax.lax.sort(above << digits | place[None]) & jnp.uint32(2**digits - 1)).astype(jnp.int32)


def shuffle_steps(key: PRNGKey, mask: Bool[Array, "L"], steps: int, batch_size: int) -> Int[Array, "M"]:
    """Returns random orders of the `n` places where `mask` holds, one after another, enough for `steps` batches.

    Slot `e n + j` holds the `j`-th place of epoch `e`. The number of epochs depends on `n`, which is traced, but all
    epochs together have fewer than `M = (steps + L / batch_size) batch_size` slots, whatever `n` is: they are sorted at
    once, by epoch and then at random.
    """
    longest = mask.shape[0]
    slots = (steps + -(-longest // batch_size) - 1) * batch_size
    num_examples = jnp.maximum(mask.sum(), 1).astype(jnp.uint32)
    # The places that `mask` holds, in ascending order; the rank of an example is its position there.
    places = jax.lax.sort(jnp.where(mask, jnp.arange(longest, dtype=jnp.uint32), jnp.uint32(longest - 1)))
    slot = jnp.arange(slots, dtype=jnp.uint32)
    epoch, rank = slot // num_examples, slot % num_examples
    key_noise, key_ties = jax.random.split(key)
    noise = jax.random.bits(key_noise, (slots,), jnp.uint32)
    digits = (slots - 1).bit_length()
    if digits > MOST_SLOT_DIGITS:
        room = 32 - count_digits(epoch[-1])
        above = jnp.where(room < 32, epoch << room, jnp.uint32(0)) | noise >> (32 - room)
        _, rank = jax.lax.sort((above, rank), num_keys=1, is_stable=False)
        return places[rank].astype(jnp.int32)
    # One number per slot: its epoch, its noise, its rank. A client with many epochs has few examples and the other way
    # round, so epoch and rank together have at most one digit more than a slot.
    of_noise, of_rank = 31 - digits, count_digits(num_examples - 1)
    below = (jnp.uint32(1) << of_rank) - jnp.uint32(1)
    flip = jax.random.bits(key_ties, (), jnp.uint32) & below  # with equal noise, either rank may come first
    packed = epoch << (of_noise + of_rank) | (noise >> (32 - of_noise)) << of_rank | rank ^ flip
    return places[(jax.lax.sort(packed) & below) ^ flip].astype(jnp.int32)


def count_digits(number: UInt32[Array, ""]) -> UInt32[Array, ""]:
    """Returns how many binary digits a number has; 0 has none."""
    return jnp.uint32(32) - jax.lax.clz(number)
