"""Configures JAX before a command runs anything."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from warnings import warn

import jax

from fedjax_sel.cores import count_cores
from fedjax_sel.data.cache import find_cache
from fedjax_sel.engine.disk import find_obstacle
from fedjax_sel.report.environment import explain_missing_device


def prepare_jax(*, mesh: Mapping[str, int] | None = None, cache: bool) -> None:
    """Configures JAX, before anything of it is used.

    On a CPU, it sees as many devices as a mesh has; without a mesh, every core is one.

    Args:
      mesh: numbers of devices that the configuration asks for, by axis; None: chosen by `simulate`.
      cache: whether to keep compiled programs on disk.

    Raises:
      ValueError: JAX finds no device of the platform that it is told to use.
    """
    use_cores(None if mesh is None else math.prod(mesh.values()))
    let_devices_wait()
    if cache:
        keep_compiled_programs()
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(explain_missing_device(error)) from error


MOST_DEVICES = 64
"""The most devices that a CPU with fewer cores is made to have; with hundreds, they never get to the end of a round."""


def use_cores(count: int | None = None) -> None:
    """Lets JAX see a CPU as `count` devices.

    None, or more than both `MOST_DEVICES` and its number of cores: as many as it has cores.
    Nothing changes if JAX is initialised, if the number of devices is already chosen, or in one of several processes.
    """
    chosen = (
        "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
        or getattr(jax.config, "jax_num_cpu_devices", -1) > 0
    )
    if chosen or jax.distributed.is_initialized():
        return
    if count is None or count > max(count_cores(), MOST_DEVICES):  # `simulate` refuses the mesh of a larger machine
        count = count_cores()
    with contextlib.suppress(RuntimeError):  # JAX is already initialised
        jax.config.update("jax_num_cpu_devices", count)


PATIENCE = 24 * 3600
"""Seconds that a device waits for the others of a CPU before XLA ends the process; by default, 40."""


def let_devices_wait(seconds: int = PATIENCE) -> None:
    """Lets devices of a CPU that are done with a round wait for those that still train.

    In a cohort of five on two devices, one of them trains a client more, which can take minutes. Nothing changes if JAX
    is initialised, or if `XLA_FLAGS` already says how long.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    for name in ("warn_stuck", "terminate"):
        flag = f"--xla_cpu_collective_call_{name}_timeout_seconds"
        flags += "" if flag in flags else f" {flag}={seconds}"
    os.environ["XLA_FLAGS"] = flags.strip()


def keep_compiled_programs() -> None:
    """Lets XLA cache compiled programs on disk; warns if the folder cannot be written, but still reads it."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    place = find_cache() / "xla"
    if obstacle := find_obstacle(place):
        warn(
            f"new compiled programs are not kept: {place} cannot be written ({obstacle}); set FEDJAX_SEL_CACHE to a "
            "folder elsewhere, or give --no-cache",
            stacklevel=3,
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    # This includes the small programs before round 0, which together take seconds.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
