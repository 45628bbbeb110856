"""Sums and means of examples' values by client, in at least 32 bits, so that equal values have equal means."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

from fedjax_sel.arrays import expand, widen
from fedjax_sel.data.federated import FederatedData


def average_by_client(
    value: Shaped[Array, "n ..."], data: FederatedData, *, holdout: bool = False
) -> Shaped[Array, "N ..."]:
    """Averages a value per example over each client's examples, in at least 32 bits; 0 of a client without any."""
    value = widen(value)
    base = find_shift(value)
    total = sum_by_client(value - base, data, holdout=holdout)
    count = expand(data.count_examples(holdout=holdout), total)
    return jnp.where(count > 0, base + total / jnp.maximum(count, 1), 0)


def find_shift(value: Shaped[Array, "n ..."]) -> Shaped[Array, "1 ..."]:
    """Returns the number from the smallest to the largest value that is nearest to 0; 0 if it is not finite.

    Values are added up as differences from it, which are no larger than twice a value and so lose no digits. Thus
    clients whose examples all have the same value have the same mean, to the bit, and tie; and rounding, which grows
    with the number of examples, as they are added one after the other, has less to grow from.
    """
    base = jnp.clip(0, value.min(0, keepdims=True), value.max(0, keepdims=True))
    return jnp.where(jnp.isfinite(base), base, 0)


def sum_by_client(
    value: Shaped[Array, "n ..."], data: FederatedData, *, holdout: bool | Bool[Array, ""] = False
) -> Shaped[Array, "N ..."]:
    """Sums a value per example over each client's examples, its training or its hold-out examples."""
    start, count = data.locate_examples(holdout=holdout)
    owner = jnp.minimum(data.owner, data.num_clients - 1)
    place = jnp.arange(data.order.shape[0]) - start[owner]
    counts = (place >= 0) & (place < count[owner])
    value = jnp.where(expand(counts, value), value[data.order], 0)
    return jax.ops.segment_sum(value, data.owner, data.num_clients, indices_are_sorted=True, mode="drop")


def average_masked(value: Shaped[Array, "d L ..."], mask: Bool[Array, "d L"]) -> Shaped[Array, "d ..."]:
    """Averages over the second axis the entries in the mask, in at least 32 bits; 0 if there are none."""
    value = widen(value)
    base = find_shift(value.reshape(-1, *value.shape[2:]))
    total = jnp.where(expand(mask, value), value - base[None], 0).sum(1)
    count = expand(mask.sum(1), total)
    return jnp.where(count > 0, base + total / jnp.maximum(count, 1), 0)
