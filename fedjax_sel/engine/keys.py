"""Random keys, addressed rather than consumed: a key is a function of seed, purpose, round and client.

Client 17 in round 9 shuffles its examples the same way under every strategy, chunk size and layout, and a restart needs
only the seed and the round.
"""

from __future__ import annotations

from enum import IntEnum

import jax
from jaxtyping import Array, Int, Integer

from fedjax_sel.types import PRNGKey


class Purpose(IntEnum):
    """What random numbers are used for. The values determine every result, so new purposes go at the end."""

    MODEL = 0
    SELECTOR = 1
    CANDIDATES = 2
    SELECT = 3
    OBSERVE = 4
    DATA = 5
    TRAIN = 6
    AVAILABILITY = 7
    SIGNALS = 8
    PROBE = 9
    ACCEPT = 10
    VOLATILITY = 11
    COHORT_SIGNALS = 12
    DATA_SERVER = 13
    FINE_TUNE = 14
    NOISE = 15
    TRAINED_SIGNALS = 16
    DATA_MERGE = 17


OF_OBSERVE, OF_SIGNALS, OF_UPFRONT = 2**32 - 1, 2**32 - 2, 2**31
"""Folded into a strategy's key for the draws beside it: a data selector's `observe`, its signals, upfront signals.

`fold_in(key, i)` equals `split(key, n)[i]`, so these numbers lie beyond the parts into which a strategy splits its key.
Upfront signal `i` gets `OF_UPFRONT + i`.
"""


def make_key(seed: Integer[Array, ""] | int) -> PRNGKey:
    """Returns the key of a seed, of the generator Threefry whatever JAX's default is.

    With the generators `rbg` and `unsafe_rbg`, what is drawn depends on what is mapped beside it, so that a seed alone
    and the same seed among others would be two runs.

    >>> jax.random.key_impl(make_key(3))
    'threefry2x32'
    """
    return jax.random.key(seed, impl="threefry2x32")


def key_for(
    run_key: PRNGKey, purpose: Purpose, round: Int[Array, ""] | int = 0, client: Int[Array, ""] | int | None = None
) -> PRNGKey:
    """Returns the key at an address.

    Args:
      run_key: key of the run's seed, from which all others are derived.
      purpose: what the key is used for.
      round: the round, from 0.
      client: the client, if each client draws for itself.
    """
    key = jax.random.fold_in(jax.random.fold_in(run_key, int(purpose)), round)
    return key if client is None else jax.random.fold_in(key, client)
