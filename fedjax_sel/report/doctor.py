"""Checks an installation: versions, devices, caches, a tiny run."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fedjax_sel import config
from fedjax_sel.data.cache import find_cache, find_folder
from fedjax_sel.engine.disk import find_obstacle
from fedjax_sel.report.environment import environment, explain_missing_device
from fedjax_sel.report.quantities import format_bytes, format_seconds

EXTRAS = ("tensorboardX", "wandb", "mlflow", "trackio", "optuna", "safetensors", "datasets")
"""The packages that the extras install."""

LEAST = 2**30
"""Free bytes of a disk below which a run may not fit."""


def examine() -> Iterator[tuple[str, str, bool]]:
    """Yields what was checked, what was found, and whether it is as it should be."""
    import jax

    try:
        known = environment()
    except (RuntimeError, AssertionError, ValueError) as error:  # JAX has no such device
        yield "devices", explain_missing_device(error), False
        return
    yield "python", f"{sys.version.split()[0]} ({sys.executable})", sys.version_info >= (3, 11)
    for name in ("fedjax_sel", "jax", "jaxlib", "flax", "optax", "numpy"):
        yield name, str(known.get(name) or "not installed"), known.get(name) is not None
    there = [name for name in EXTRAS if find_spec(name) is not None]
    yield "extras", ", ".join(there) or "none", True
    yield "devices", f"{len(jax.devices())} x {jax.devices()[0].device_kind} ({jax.default_backend()})", True
    yield from (examine_folder(name, place) for name, place in list_caches())
    yield examine_run()


def list_caches() -> list[tuple[str, Path]]:
    """Returns the folders that are kept between runs."""
    import jax

    programs = Path(getattr(jax.config, "jax_compilation_cache_dir", None) or find_cache() / "xla")
    return [("compiled programs", programs), ("decoded datasets", find_folder())]


def examine_folder(name: str, place: Path) -> tuple[str, str, bool]:
    """Returns the size of a cache, and whether it is writable and its disk has room."""
    held = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) if place.is_dir() else 0
    there = place
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    wrong = f"cannot be written: {obstacle}" if (obstacle := find_obstacle(place)) else ""
    wrong = wrong or (f"less than {format_bytes(LEAST)} free" if free < LEAST else "")
    cure = f"; {wrong}; set FEDJAX_SEL_CACHE to a folder elsewhere" if wrong else ""
    return name, f"{place}, {format_bytes(held)} held, {format_bytes(free)} free on its disk{cure}", not wrong


def examine_run() -> tuple[str, str, bool]:
    """Returns how long a run of two rounds on iris took, or why it failed."""
    began = time.perf_counter()
    given = {"data": "iris", "model": "logistic", "partition": {"clients": 5}}
    given |= {"cohort_size": 2, "rounds": 2, "seeds": 1}
    try:
        history = config.build(config.resolve(given)).simulate()
    except Exception as error:  # anything may be wrong with this installation
        return "a run of 2 rounds", f"{type(error).__name__}: {error}", False
    took = format_seconds(time.perf_counter() - began)
    return "a run of 2 rounds", f"accuracy {history['accuracy'][0, -1]:.2f} in {took}, compilation included", True
