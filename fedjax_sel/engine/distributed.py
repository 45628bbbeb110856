"""Several devices and processes: placing arrays, fetching them, and what all processes must agree on."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from fedjax_sel.engine.layout import Layout
from fedjax_sel.pytree import is_key

CGROUPS = Path("/sys/fs/cgroup")
MEMORY_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files in which Linux gives the memory limit of a container: control groups version 2, and version 1."""

HEARTBEAT = 30
"""Seconds without a heartbeat after which a process is considered dead, and the others end."""

PATIENCE = 600
"""Seconds that a process waits for the others where they may arrive at different times, after reading or compiling."""

BARRIERS = itertools.count()

OTHER_RUN = (
    "the processes were started with different runs (settings, seeds, data or code); start all of them with the same "
    "command, versions and files"
)


def init_distributed(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Makes this process one of several that run one program; must be called before anything else in JAX.

    Args:
      coordinator: `HOST:PORT` of the first process; None: JAX detects it and the other two (Slurm, TPU pods,
        Kubernetes, Open MPI).
      processes: number of processes.
      process: number of this process, from 0.

    Raises:
      ValueError: only some arguments are given, `process` is out of range, or JAX cannot join the processes.
    """
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        lacks = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        raise ValueError(f"{lacks}; give all of {', '.join(given)}, or --distributed alone")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ValueError(f"--process is {process}; with --processes {processes} it is 0 to {processes - 1}")
    try:
        jax.distributed.initialize(
            coordinator, processes, process, heartbeat_timeout_seconds=HEARTBEAT, shutdown_timeout_seconds=HEARTBEAT
        )
    except (ValueError, RuntimeError) as error:
        alone = "coordinator_address should be defined" in str(error)
        cure = "; JAX finds no cluster here: give --coordinator, --processes and --process" if alone else ""
        raise ValueError(f"the processes cannot be joined: {str(error).splitlines()[0].rstrip('.')}{cure}") from error


def is_distributed() -> bool:
    """Returns whether several processes run one program."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Returns whether this is the process that writes files."""
    return jax.process_index() == 0


def place(tree: Any, own: list[bool], layout: Layout) -> Any:
    """Places arrays on the devices that use them; `own` says whether each leaf has a leading axis of runs."""
    if layout.mesh is None:
        return jax.device_put(tree)
    leaves, structure = jax.tree.flatten(tree)

    def put(leaf, has_own):
        sharding = layout.sharding(has_own)
        if not is_distributed():
            return jax.device_put(leaf, sharding)
        if not hasattr(leaf, "dtype"):
            return leaf  # a Python number is the same everywhere, and an array would lose its weak type
        if is_key(leaf):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf), has_own), impl=jax.random.key_impl(leaf))
        here = np.asarray(leaf)  # every process has all of it, and places its part
        return jax.make_array_from_callback(here.shape, sharding, lambda index: here[index])

    return structure.unflatten([put(leaf, has_own) for leaf, has_own in zip(leaves, own, strict=True)])


def place_shapes(tree: Any, own: list[bool], layout: Layout) -> Any:
    """Returns the shapes and shardings of what `place` returns, for which a program traces as for the arrays.

    Args:
      tree, own, layout: as for `place`; leaves may be shapes themselves.
    """
    if layout.mesh is None:
        return tree

    def put(leaf, has_own):
        if is_distributed() and not hasattr(leaf, "dtype"):
            return leaf
        kind = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
        sharding = layout.sharding(has_own)
        return jax.ShapeDtypeStruct(kind.shape, kind.dtype, sharding=sharding, weak_type=kind.weak_type)

    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten([put(leaf, has_own) for leaf, has_own in zip(leaves, own, strict=True)])


@contextlib.contextmanager
def as_runtime_error() -> Iterator[None]:
    """Context manager that turns `ValueError`, which JAX raises if communication fails, into `RuntimeError`.

    In this library `ValueError` means an error by the user.
    """
    try:
        yield
    except ValueError as error:
        raise RuntimeError(str(error)) from error


@as_runtime_error()
def fetch(tree: Any) -> Any:
    """Returns arrays as NumPy arrays on every host, and random keys as their key data.

    Raises:
      RuntimeError: they could not be computed or sent.
    """
    tree = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)
    leaves, structure = jax.tree.flatten(tree)
    spread = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable]
    if spread:
        everywhere = NamedSharding(leaves[spread[0]].sharding.mesh, PartitionSpec())
        whole = jax.jit(identity, out_shardings=everywhere)([leaves[i] for i in spread])
        for i, leaf in zip(spread, whole, strict=True):
            leaves[i] = leaf.addressable_data(0)
    return structure.unflatten(map(np.asarray, leaves))


def identity(tree: Any) -> Any:
    """Returns its argument."""
    return tree


def wait_for_all() -> None:
    """Waits until all processes arrive; later collectives only wait half a minute for the slowest process."""
    if not jax.distributed.is_initialized():
        return
    name, client = f"fedjax_sel-{next(BARRIERS)}", coordination_client()
    if client is None:
        multihost_utils.sync_global_devices(name)
    else:
        client.wait_at_barrier(name, PATIENCE * 1000)


def coordination_client() -> Any | None:
    """Returns JAX's coordinator client, whose barrier takes a timeout; None if JAX does not keep it at this place.

    No public function has such a barrier: `sync_global_devices` times out as early as any other message.
    """
    try:
        from jax._src import distributed

        client = distributed.global_state.client
    except (ImportError, AttributeError):
        return None
    return client if hasattr(client, "wait_at_barrier") else None


@as_runtime_error()
def max_over_processes(number: int) -> int:
    """Returns the largest of the processes' numbers; all of them must call it at the same point."""
    return int(multihost_utils.process_allgather(np.asarray(number)).max()) if is_distributed() else number


def any_process(flag: bool) -> bool:
    """Returns whether the flag of any process is set; all of them must call it at the same point."""
    return bool(max_over_processes(int(flag)))


def check_same(number: int) -> None:
    """Raises `ValueError` if what the processes find in their folders differs, as the round that they resume from."""
    if max_over_processes(number) != -max_over_processes(-number):
        raise ValueError(
            "the processes find different checkpoints or results; their folder must be on a disk that all of them share"
        )


def check_same_run(mark: str, said: str = OTHER_RUN) -> None:
    """Raises `ValueError` if the processes have different runs; `mark` is any text that tells this process's run.

    Args:
      mark: the text.
      said: the message.
    """
    number = int(hashlib.sha256(mark.encode()).hexdigest()[:7], 16)  # what an Int32 can hold
    if max_over_processes(number) != -max_over_processes(-number):
        raise ValueError(said)


def exit_process(code: int) -> None:
    """Ends this process at once if it is one of several, so that the others end, too; otherwise does nothing.

    An ordinary exit would wait for the other processes, which may be waiting for this one.
    """
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def device_memory() -> int:
    """Returns the bytes of a device's memory; on a CPU, its share of what this machine or its container may use."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(physical, memory_limit() or physical) // jax.local_device_count()


def memory_limit(root: Path = CGROUPS) -> int | None:
    """Returns the bytes of memory that the container may use; None: no limit.

    Args:
      root: where control groups are mounted.
    """
    limits = []
    for name in MEMORY_LIMITS:
        with contextlib.suppress(OSError):
            text = (root / name).read_text(encoding="utf-8").strip()
            limits += [int(text)] if text.isdigit() else []  # "max": no limit
    return min(limits, default=None)


def describe_device() -> str:
    """Describes the devices that JAX uses: number, kind and memory."""
    devices = jax.devices()
    hosts = f" on {jax.process_count()} hosts" if is_distributed() else ""
    return (
        f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform}){hosts}, {device_memory() / 2**30:.1f} GiB"
    )
