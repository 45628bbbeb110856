"""The default layout of a run, and the measurements behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Int

from fedjax_sel.catalog import see
from fedjax_sel.engine.layout import Layout


@see("docs/how-to/many-devices.md")
def choose_layout(
    layout: Layout | str | None,
    work: float,
    forward: float,
    mesh: tuple[int, int] | str | None = None,
    *,
    runs: int = 1,
    members: int = 1,
    cohort: int | None = None,
    steps: Sequence[Int[np.ndarray, "N"]] = (),
) -> Layout:
    """Returns the layout to use.

    Args:
      layout: a `Layout`, or None or `"auto"`, `"vmap"`, `"scan"`.
      work: floating-point operations of one client's forward and backward step.
      forward: floating-point operations of one example's forward pass.
      mesh: of devices; `"auto"`: chosen by `divide_cores`; None: the layout's own.
      runs, members: what there is to divide: seeds, and clients of a cohort.
      cohort: clients of a cohort, if they cannot be divided; None: `members`.
      steps: local steps of each client, for each federation that runs are on; none: all clients have as many.

    Raises:
      ValueError: the layout's name is unknown, or the mesh does not match the devices.
    """
    if mesh in (None, "auto") and isinstance(layout, Layout) and layout.mesh is not None:
        mesh = layout.mesh
    if isinstance(mesh, str) and mesh != "auto":
        raise ValueError(f"mesh is {mesh!r}; it must be 'auto', or two numbers of devices (seeds, clients)")
    if mesh == "auto" and jax.process_count() == 1:
        mesh = divide_cores(runs, members)
    else:
        mesh = None if isinstance(mesh, str) else mesh
        check_mesh(mesh)
    uneven = any(of_clients.max() > UNEVEN * of_clients.mean() for of_clients in steps)
    if isinstance(layout, Layout):
        return replace(layout, mesh=mesh, balanced=uneven if layout.balanced is None else layout.balanced)
    on_cpu = jax.default_backend() == "cpu"
    least, work_at_once = (LEAST_EXAMPLES, LARGE_PASS) if on_cpu else (4 * LEAST_EXAMPLES, 10 * LARGE_PASS)
    examples = int(min(MOST_EXAMPLES, max(least, work_at_once / max(forward, 1.0))))
    known = {
        "vmap": Layout(examples=examples, mesh=mesh, balanced=False),
        "scan": Layout(clients=1, seeds="scan", examples=examples, balanced=uneven, mesh=mesh),
    }
    if layout in known:
        return known[layout]
    if layout not in (None, "auto"):
        raise ValueError(f"layout is {layout!r}; it must be 'auto', 'vmap', 'scan' or a Layout")
    # On a CPU a large step keeps the cores busy by itself, and stacking costs memory; a small one is mostly overhead.
    if on_cpu and work >= SMALL_STEP:
        return known["scan"]
    # Stack seeds, too; on a CPU only as long as what they touch in a step stays in the caches.
    shares = mesh or (1, 1)
    side, each = (-(-whole // share) for whole, share in zip((runs, members), shares, strict=True))
    seeds = "scan" if on_cpu and side > 1 and work * side * each > LARGE_STEP else "vmap"
    if on_cpu and uneven:
        cost = estimate_cost(work, steps, runs, cohort or members, shares)
        best = min(cost, key=cost.__getitem__)
        if best[1] == "scan" and cost[best] < WORTH * cost[seeds, "vmap"]:
            return replace(known["vmap"], seeds=best[0], members=1, balanced=True)
    return replace(known["vmap"], seeds=seeds)


def estimate_cost(
    work: float, steps: Sequence[Int[np.ndarray, "N"]], runs: int, cohort: int, shares: tuple[int, int]
) -> dict[tuple[str, str], float]:
    """Returns what a round costs a core of a CPU, in floating-point operations, by how seeds and clients are run.

    Clients side by side take the steps of the longest of them, in every seed that is beside; one after another, the
    longest first, they take their own, or those of the longest of the seeds' members in the same place.

    Args:
      work: floating-point operations of one client's step.
      steps: local steps of each client, for each federation.
      runs, cohort: seeds, and clients of a cohort.
      shares: numbers of devices that share them.
    """
    rng, drawn = np.random.default_rng(0), []
    few = [np.sort(one)[np.linspace(0, len(one) - 1, min(len(one), MOST_SAMPLED)).astype(int)] for one in steps]
    side = -(-runs // shares[0])
    for turn in range(SAMPLES):
        every = [rng.permutation(few[(turn * side + i) % len(few)])[:cohort] for i in range(side)]
        least = min(map(len, every))
        drawn.append([np.sort(one)[::-1][: least : shares[1]] for one in every])
    count = np.asarray(drawn, float)  # turn, seed, member
    side, each = len(drawn[0]), len(drawn[0][0])

    def price(width: int) -> float:
        crowded = side > 1 and width * work > LARGE_STEP
        return (OF_STEP + width * (OF_MODEL + work)) * (CROWDED if crowded else 1.0)

    total = {
        ("vmap", "vmap"): count.max((1, 2)) * price(side * each),
        ("scan", "vmap"): count.max(2).sum(1) * price(each),
        ("scan", "scan"): count.sum((1, 2)) * price(1),
        ("vmap", "scan"): count.max(1).sum(1) * price(side),
    }
    return {how: float(one.mean()) for how, one in total.items()}


def divide_cores(runs: int, members: int) -> tuple[int, int] | None:
    """Returns the mesh with the least sequential work on a CPU that JAX sees as several devices; otherwise None.

    A core with clients of its own need not wait for another core in every operation: rounds of small models took 0.6 to
    0.8 of the time, of convolutions 0.7 to 0.9, seeds side by side 0.5 to 0.65 (2 cores, `benchmarks/NOTES.md`).

    Args:
      runs: number of seeds.
      members: clients that train in a round.
    """
    if jax.default_backend() != "cpu":
        return None
    devices = jax.local_device_count()
    shapes = [(seeds, clients) for seeds in range(1, devices + 1) for clients in range(1, devices // seeds + 1)]
    best = min(shapes, key=lambda mesh: (-(-runs // mesh[0]) * -(-members // mesh[1]), math.prod(mesh), -mesh[0]))
    return None if best == (1, 1) else best


@see("docs/how-to/many-devices.md")
def check_mesh(mesh: tuple[int, int] | None) -> None:
    """Raises `ValueError` if a mesh does not use all devices, or there are several processes but no mesh."""
    there = jax.device_count()
    if mesh is None:
        if jax.process_count() > 1:
            raise ValueError(
                f"{jax.process_count()} processes would all do the same; divide the run among their {there} devices, "
                f"as in --mesh seeds={there},clients=1"
            )
        return
    if len(mesh) != 2 or any(not isinstance(k, int) or k < 1 for k in mesh) or mesh[0] * mesh[1] != there:
        wanted = " x ".join(map(str, mesh))
        devices = "is 1 device" if there == 1 else f"are {there} devices"
        raise ValueError(
            f"the mesh is {wanted} (seeds, clients), but there {devices}; "
            f"the product of two whole numbers must be {there}, as in --mesh seeds={there},clients=1"
        )


MOST_EXAMPLES = 8192
"""The most examples in one flat forward pass through the global model."""

LARGE_STEP = 2e7
"""Floating-point operations of a step, over a device's seeds and clients, beyond which a CPU runs seeds in turn.

16 seeds on 2 cores, time by scan over time by vmap: 1.9 at 1.7e4 (Iris), 1.1 at 1.7e6 and 1.0 at 1.6e7 (digits,
logistic regression and 64-64-30-10), 0.6 to 0.9 at 4.3e7 (MNIST, logistic regression).
"""

OF_STEP, OF_MODEL, CROWDED = 3e5, 5e4, 1.35
"""What a step costs a CPU besides its products, and each model in it, in floating-point operations; and how many times
as much it costs if what it touches does not stay in the caches.

Fitted by hand to rounds of ten of 50 clients on 2 cores, of equal sizes or by a Dirichlet law, with 1, 5 and 16 seeds:
logistic regression of 4, 64 and 784 features, and perceptrons. `python -m benchmarks --only unequal` times the choice.
"""

UNEVEN = 1.25
"""How many times the average steps the longest client has at most, where clients count as alike."""

WORTH = 0.85
"""The part of the cost below which unequal members of a cohort train in turn."""

SAMPLES, MOST_SAMPLED = 16, 1000
"""How often cohorts are drawn for an estimate, and from how many clients at most, of all sizes."""

LARGE_PASS, LEAST_EXAMPLES = 1e9, 64
"""The most floating-point operations of a flat pass on a CPU, and the fewest examples that it has even so.

What a pass holds at once grows with its work until it no longer fits the caches: 10,000 examples of 32x32x3 through two
convolutions (1.7e7 per example) took 3.4 s in passes of 64 or 128, 4.3 s in passes of 590 and 3.6 s in passes of 16
(2 cores); ResNet-20 (8e7) took 12.4 s in passes of 64 and 13.3 s in passes of 256. On an accelerator the limits are ten
and four times as high, which is not measured.
"""

SMALL_STEP = 5e7
"""Floating-point operations of a step up to which stacking clients and seeds is faster on a CPU.

On two cores as two devices, scanning took 0.8 to 1.4 times as long as stacking at 5e5 (logistic regression, 784
features, B = 10), and 0.9 to 1.2 times at 2e7 (784-64-30-10, B = 64), in three measurements by `python -m benchmarks
--only layouts`: within the scatter. As one device, it took 1.2 to 1.7 and 1.2 to 1.3 times as long. Larger steps are
scanned: at 1e9 (`pfl-cifar`, two clients per core) stacking took 0.8 to 2.6 times as long, and more memory.
"""
