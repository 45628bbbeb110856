"""How often each solver of the device heuristic finds the best set of devices, and how long it takes.

No rounds are simulated here: `f` is U(0, 1) for each device and property, and each solver looks for the best set.
Seed `k` determines its instances; all solvers see the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedjax_sel.client_selection._device_heuristic import Choice, Weights, cohort_size
from fedjax_sel.client_selection._device_solvers import MOST_ENUMERATED, exact, exhaustive, greedy

EVERY, BEST, LETTER = "greedy, every start", "greedy, best start", "to the letter"
EXACT, EXHAUSTIVE = "exact", "exhaustive"
SOLVERS: dict[str, Callable[..., Choice]] = {
    EVERY: greedy,
    BEST: partial(greedy, starts="best"),
    LETTER: partial(greedy, reading="alone"),
    EXACT: exact,
    EXHAUSTIVE: exhaustive,
}
EPSILONS = (1.0, 0.75, 0.5)
Found = TypeVar("Found")
FEW = 10
"""Devices to select when greedy search has to finish at large `N`: its time grows with `N² s`."""


@dataclass(frozen=True)
class Size:
    """The size of the study.

    Attributes:
      instances: per seed.
      enumerated: instances per seed that are also enumerated.
      devices: values of `N` at which optimality is measured.
      timed: values of `N` at which time is measured.
      greedy_up_to: largest `N` at which greedy search is timed for half of the devices.
    """

    instances: int
    enumerated: int
    devices: tuple[int, ...] = (8, 10, 12, 14, 16, 20, 24, 30)
    timed: tuple[int, ...] = (8, 16, 30, 100, 300, 1000, 3000, 10_000)
    greedy_up_to: int = 1000


SIZES = {
    "smoke": Size(10, 1, devices=(8, 12, 16, 30), timed=(8, 16, 100)),
    "small": Size(100, 20),
    "full": Size(1000, 100, greedy_up_to=3000),
}
INSTANCES = 0x501E
"""First word of the random stream."""

SAME = 1e-6
"""Values of `H` closer than this count as equal."""


def study_solvers(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns the optimality of the solvers, their agreement with enumeration, and their times."""
    size = SIZES[scale]
    f = np.stack([draw_properties(seed, size.instances, max(size.devices)) for seed in seeds])
    found = [(n, e, solve_all(f, n, e)) for n in size.devices for e in EPSILONS]
    return {
        "instances a seed": size.instances,
        "optimality": [row for n, e, value in found for row in measure_optimality(n, e, value)],
        "enumeration": [
            compare_with_enumeration(f[:, : size.enumerated], n, e, value[EXACT][:, : size.enumerated])
            for n, e, value in found
            if n <= MOST_ENUMERATED and e < 1
        ],
        "times": measure_times(size),
    }


def draw_properties(seed: int, count: int, n: int) -> Float[np.ndarray, "count 4 n"]:
    """Returns `count` draws of the properties of `n` devices."""
    return np.random.default_rng((INSTANCES, seed)).random((count, 4, n), np.float32)


def solve_all(f: Float[np.ndarray, "R K 4 N"], n: int, epsilon: float) -> dict[str, Float[np.ndarray, "R K"]]:
    """Returns `H` of the set that each solver finds among the first `n` devices."""
    flat = f.reshape(-1, *f.shape[2:])
    return {
        name: np.asarray(solve(flat, n, cohort_size(epsilon, n), name=name)).reshape(f.shape[:2])
        for name in (EVERY, BEST, LETTER, EXACT)
    }


@partial(jax.jit, static_argnames="name")
def solve(
    f: Float[Array, "k 4 N"], n: Int[Array, ""] | int, s: Int[Array, ""] | int, *, name: str
) -> Float[Array, "k"]:
    """Returns the values of the sets that a solver finds; compiled once for all `n` and `s`.

    Devices from `n` on are not available.
    """
    available = jnp.arange(f.shape[-1]) < n
    return jax.lax.map(lambda one: SOLVERS[name](one, Weights(), s, available).value, f, batch_size=500)


def measure_optimality(n: int, epsilon: float, value: dict[str, Float[np.ndarray, "R K"]]) -> list[dict[str, Any]]:
    """Returns how close each solver comes to the optimum, by seed."""
    out = []
    for name in (EVERY, BEST, LETTER):
        gap = (value[EXACT] - value[name]) / value[EXACT]
        out.append(
            {
                "N": n,
                "epsilon": epsilon,
                "solver": name,
                "share_optimal": (value[name] > value[EXACT] - SAME).mean(1),
                "mean_gap": np.maximum(gap, 0).mean(1),
                "worst_gap": np.maximum(gap, 0).max(1),
            }
        )
    return out


def compare_with_enumeration(
    f: Float[np.ndarray, "R K 4 N"], n: int, epsilon: float, value: Float[np.ndarray, "R K"]
) -> dict[str, Any]:
    """Returns how far the exact solver's optimum is from the one that enumeration finds."""
    flat = f.reshape(-1, *f.shape[2:])[:, :, :n]
    s = cohort_size(epsilon, n)
    best = np.asarray(enumerate_best(flat, s)).reshape(value.shape)
    apart = np.abs(best - value)
    return {"N": n, "epsilon": epsilon, "instances": apart.size, "largest_difference": apart.max()}


@jax.jit
def enumerate_best(f: Float[Array, "k 4 N"], s: Int[Array, ""] | int) -> Float[Array, "k"]:
    """Returns the largest `H` over all sets of `s` devices, one instance at a time, as each enumerates `2^N` sets."""
    return jax.lax.map(lambda one: exhaustive(one, Weights(), s).value, f)


def measure_times(size: Size) -> list[dict[str, Any]]:
    """Returns the seconds of a call after compilation, the median of several, by solver and `N`."""
    out = []
    for n in size.timed:
        f = jnp.asarray(draw_properties(0, 1, n)[0])
        half, few = cohort_size(0.5, n), min(FEW, n)
        asked = [(EXACT, "half", half), (BEST, "half", half), (EXACT, "few", few), (EVERY, "few", few)]
        asked += [(EVERY, "half", half)] if n <= size.greedy_up_to else []
        asked += [(EXHAUSTIVE, "half", half)] if n <= MOST_ENUMERATED else []
        for name, wanted, s in asked:
            seconds, choice = time_call(SOLVERS[name], f, Weights(), s)
            best = float(exact(f, Weights(), s).value)
            gap = max((best - float(choice.value)) / best, 0.0)
            out.append({"solver": name, "wanted": wanted, "s": s, "N": n, "seconds": seconds, "gap": gap})
    return out


def time_call(call: Callable[..., Found], *args: Any) -> tuple[float, Found]:
    """Returns the median seconds of a call, of 5 to 50 calls within about a tenth of a second, and what it found."""
    found = jax.block_until_ready(call(*args))
    spent: list[float] = []
    while len(spent) < 5 or (len(spent) < 50 and sum(spent) < 0.1):
        began = time.perf_counter()
        jax.block_until_ready(call(*args))
        spent.append(time.perf_counter() - began)
    return float(np.median(spent)), found
