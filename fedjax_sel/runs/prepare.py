"""What JAX is told before a command runs anything."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax

from fedjax_sel.cores import count_cores


def prepare_jax(*, cores: bool, cache: bool) -> None:
    """Prepares JAX, before anything of it is used.

    Args:
      cores: let it see a device in every core of a CPU, among which rounds and seeds are divided.
      cache: keep compiled programs on disk.
    """
    if cores:
        use_cores()
    if cache:
        keep_compiled_programs()


def use_cores() -> None:
    """Lets JAX see a device in every core of a CPU.

    Nothing changes where JAX has begun, where the number of devices is chosen already, or in one of several processes.
    """
    chosen = (
        "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
        or getattr(jax.config, "jax_num_cpu_devices", -1) > 0
    )
    if chosen or jax.distributed.is_initialized():
        return
    with contextlib.suppress(RuntimeError):  # JAX has begun
        jax.config.update("jax_num_cpu_devices", count_cores())


def keep_compiled_programs() -> None:
    """Lets XLA keep what it compiles for the next start; where that folder cannot be made, does nothing."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    place = Path(os.environ.get("FEDJAX_SEL_CACHE") or "~/.cache/fedjax_sel").expanduser() / "xla"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(place))
    # The small programs before round 0 too: together they take seconds.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
