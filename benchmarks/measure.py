"""Measures time, memory, and the distance from the machine's limit."""

from __future__ import annotations

import resource
import time
from typing import Any

import jax
import numpy as np

import fedjax_sel as fs
from fedjax_sel.runs.prepare import use_cores

CPU_SIDE, ACCELERATOR_SIDE, REPEATS = 2048, 8192, 7
"""Sides of the matrices whose product is the peak, so large that its start takes no time, and how often it runs."""


def prepare() -> None:
    """Prepares JAX to measure: every core is a device, and no program is read from a cache on disk."""
    use_cores()
    jax.config.update("jax_enable_compilation_cache", False)


def peak_flops() -> float:
    """Returns the floating-point operations per second of a float32 matrix product: the fastest of some repeats.

    It has JAX's default precision, as the models have: on a recent GPU, TF32.
    """
    side = CPU_SIDE if jax.default_backend() == "cpu" else ACCELERATOR_SIDE
    a, b = (jax.random.normal(key, (side, side)) for key in jax.random.split(jax.random.key(0)))
    product = jax.jit(lambda a, b: a @ b)
    product(a, b).block_until_ready()
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        product(a, b).block_until_ready()
        spent.append(time.perf_counter() - began)
    return 2 * side**3 / min(spent)


def peak_memory() -> int:
    """Returns the peak memory in bytes: the device's if it reports one, else this process's."""
    stats = jax.local_devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Marks:
    """Records when each chunk of rounds ended."""

    def __init__(self):
        self.began, self.at = time.perf_counter(), []

    def after_central_iteration(self, history: fs.History) -> None:
        """Records the time."""
        self.at.append(time.perf_counter())


def measured(
    experiment: fs.Experiment,
    data: Any,
    *,
    chunk: int,
    seeds: int = 1,
    layout: Any = None,
    examples_on: str | None = None,
    peak: float | None = None,
) -> dict[str, Any]:
    """Measures a run: seconds per round (median over all chunks but the first) and of compilation, FLOP/s, memory, ...

    Args:
      experiment, data, seeds, layout, chunk, examples_on: as `simulate` takes them; at least two chunks, of equal
        length.
      peak: FLOP/s of a matrix product, measured in the same run.
    """
    marks = Marks()
    history = fs.simulate(
        experiment,
        data,
        seeds=seeds,
        layout=layout,
        mesh="auto",
        chunk=chunk,
        examples_on=examples_on,
        callbacks=[marks],
    )
    spent = np.diff(marks.at) / chunk
    a_round = float(np.median(spent))
    flops = float(history["flops"].sum() / history.rounds)
    accuracy = history["accuracy"][:, -1]
    out = {
        "rounds": history.rounds,
        "seeds": seeds,
        "layout": history.about["layout"],
        "examples_on": history.about["examples_on"],
        "seconds_a_round": a_round,
        "seconds_a_round_fastest": float(spent.min()),
        "seconds_a_round_and_seed": a_round / seeds,
        "seconds_until_the_second_chunk": marks.at[0] - marks.began,
        "seconds_of_compilation": max(0.0, marks.at[0] - marks.began - a_round * chunk),
        "client_flops_a_round": flops,
        "flops_a_second": flops / a_round,
        "peak_memory": peak_memory(),
        "estimated_memory": history.about.get("memory"),
        "final_accuracy": float(np.nanmean(accuracy)) if np.isfinite(accuracy).any() else None,
    }
    return out if peak is None else {**out, "fraction_of_peak": out["flops_a_second"] / peak}
