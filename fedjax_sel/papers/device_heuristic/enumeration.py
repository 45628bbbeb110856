"""Set-based selection at the source's own size: enumerates all 155,117,520 sets of half of 30 devices.

A set is the union of a part of the first half of the devices and a part of the second. For each half, the sum of worths
and the worst network of every part are computed once; then every pair of parts with `s` members is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedjax_sel.client_selection._device_heuristic import Choice, Weights, cohort_size, heuristic
from fedjax_sel.papers.device_heuristic.cells import DEVICES
from fedjax_sel.papers.device_heuristic.studies import (
    BEST,
    EVERY,
    EXACT,
    EXHAUSTIVE,
    SAME,
    SOLVERS,
    draw_properties,
    time_call,
)

BELOW_ONE = (0.75, 0.5)
"""Values of ε at which there is more than one set."""

LOOKED_AT = {"smoke": 1, "small": 20, "full": 100}
"""Instances enumerated for each ε; at `smoke`, at most one per seed."""

LARGEST = 34
"""Largest number of devices whose halves are enumerated in a few seconds."""


@partial(jax.jit, static_argnames="s")
def enumerate_halves(f: Float[Array, "4 N"], weights: Weights, s: int) -> Choice:
    """Returns the best set of `s` devices, found by enumeration; for `N <= 34`.

    Args:
      f: properties.
      weights: α, β, γ, δ.
      s: devices to select, 1 to `N`.
    """
    n = f.shape[1]
    if not 1 <= s <= n <= LARGEST:
        raise ValueError(f"{s} of N = {n} devices; wanted are 1 to N of at most {LARGEST}")
    cut = n // 2
    first, second = list_parts(cut), list_parts(n - cut)
    worth, network = weights.worth(f), f[3]
    one, other = (
        value_parts(masks, worth[place], network[place])
        for masks, place in ((first, slice(cut)), (second, slice(cut, n)))
    )
    candidates = []
    for members in range(max(0, s - (n - cut)), min(cut, s) + 1):  # so many of the first half
        mine, theirs = (np.flatnonzero(m.sum(1) == k) for m, k in ((first, members), (second, s - members)))

        def value(i: Any, j: Any) -> Array:  # Eq. (3.4)
            return (one[0][i] + other[0][j]) / s + weights.delta * jnp.minimum(one[1][i], other[1][j])

        rows = value(mine[:, None], theirs[None, :]).max(1)
        i = jnp.asarray(mine)[jnp.argmax(rows)]
        j = jnp.asarray(theirs)[jnp.argmax(value(i, theirs))]
        candidates.append((rows.max(), i, j))
    best, i, j = (jnp.stack(column) for column in zip(*candidates, strict=True))
    which = jnp.argmax(best)
    mask = jnp.concatenate([jnp.asarray(first)[i[which]], jnp.asarray(second)[j[which]]])
    return Choice(mask, heuristic(f, weights, mask))


def list_parts(n: int) -> np.ndarray:
    """Returns all subsets of `n` devices as masks, [2^n, n]."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)[None]) & 1).astype(bool)


def value_parts(
    masks: np.ndarray, worth: Float[Array, "n"], network: Float[Array, "n"]
) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
    """Returns the sum of worths of every subset, and its worst network (infinite if it is empty)."""
    return jnp.where(masks, worth, 0).sum(1), jnp.where(masks, network, jnp.inf).min(1)


def study_enumeration(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns, for the source's 30 devices, each solver's seconds and how often it finds what enumeration finds."""
    few = list(seeds)[: LOOKED_AT[scale]]
    each = max(1, LOOKED_AT[scale] // len(few))
    f = np.concatenate([draw_properties(seed, each, DEVICES) for seed in few])
    return {"N": DEVICES, "rows": [compare_solvers(f, epsilon) for epsilon in BELOW_ONE]}


def compare_solvers(f: Float[np.ndarray, "k 4 N"], epsilon: float) -> dict[str, Any]:
    """Returns the row of one fraction.

    Args:
      f: properties of each instance.
      epsilon: fraction of the devices to select.
    """
    n = f.shape[-1]
    s = cohort_size(epsilon, n)
    solvers: dict[str, Callable[..., Choice]] = {
        EXHAUSTIVE: enumerate_halves,
        **{name: SOLVERS[name] for name in (EVERY, BEST, EXACT)},
    }
    timed = {name: time_call(jax.jit(partial(solve_each, solve, s)), jnp.asarray(f)) for name, solve in solvers.items()}
    found = {name: np.asarray(values) for name, (_, values) in timed.items()}
    return {
        "epsilon": epsilon,
        "s": s,
        "sets": math.comb(n, s),
        "instances": len(f),
        "seconds": {name: seconds / len(f) for name, (seconds, _) in timed.items()},
        "share_optimal": {name: (value > found[EXHAUSTIVE] - SAME).mean() for name, value in found.items()},
        "largest_difference": np.abs(found[EXACT] - found[EXHAUSTIVE]).max(),
    }


def solve_each(solve: Callable[..., Choice], s: int, f: Float[Array, "k 4 N"]) -> Float[Array, "k"]:
    """Returns the values of the sets that a solver finds, one instance after another.

    They are one call, as the overhead of a call of its own would be most of greedy search's time.
    """
    return jax.lax.map(lambda one: solve(one, Weights(), s).value, f)
