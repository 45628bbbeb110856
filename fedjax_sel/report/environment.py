"""The environment of a result: versions, device, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
CHANGES = "+changes"
"""Suffix of a commit from which the package differs."""


def environment() -> dict[str, str | bool | None]:
    """Returns versions of packages, the device, and the commit of this package if it runs from a checkout.

    `dirty` says whether the package differs from that commit; None: not a checkout.
    """
    from fedjax_sel.engine.distributed import describe_device  # imported here because it starts the backend

    of = find_commit(Path(__file__).parents[2])
    return {
        "fedjax_sel": find_version("fedjax-sel") or "0+unknown",
        **{name: find_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": describe_device(),
        **find_settings(),
        "commit": of,
        "dirty": None if of is None else of.endswith(CHANGES),
    }


OWN_FLAGS = ("host_platform_device_count", "xla_cpu_collective_call_")
"""Flags of XLA that the command line sets, or that the device tells."""


def find_settings() -> dict[str, str]:
    """Returns the settings of JAX and XLA that can change a result's last digits, where they are not the defaults."""
    import jax  # imported here because it takes a second

    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not any(own in flag for own in OWN_FLAGS)]
    found = {"jax_default_matmul_precision": precision, "XLA_FLAGS": " ".join(flags)}
    return {name: str(value) for name, value in found.items() if value}


def explain_missing_device(error: Exception) -> str:
    """Returns what to do where JAX raises an error instead of finding the devices that `JAX_PLATFORMS` names."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    asked = os.environ.get("JAX_PLATFORMS")
    if not asked:
        return f"JAX cannot start its devices ({said.rstrip('.')}); to run on the CPU, set JAX_PLATFORMS=cpu"
    return (
        f"JAX finds no device of JAX_PLATFORMS={asked} ({said.rstrip('.')}); install the extra for it "
        "(docs/how-to/accelerators.md), or unset the variable"
    )


def find_version(name: str) -> str | None:
    """Returns the version of a package; None: it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_commit(root: Path) -> str | None:
    """Returns the commit checked out at `root`, with `+changes` if the package differs; None: not a checkout."""
    if not (root / ".git").exists():
        return None
    try:
        head = run_git(root, "rev-parse", "HEAD")
        return head + (CHANGES if run_git(root, "status", "--porcelain", "--", "fedjax_sel") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def run_git(root: Path, *arguments: str) -> str:
    """Returns the output of a git command."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
