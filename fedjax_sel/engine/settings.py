"""Settings of JAX with which no run starts."""

from __future__ import annotations

from typing import Any

import jax

REFUSED: dict[str, tuple[Any, str]] = {
    "jax_enable_x64": (False, "runs are in 32 bits"),
    "jax_threefry_partitionable": (True, "other random numbers are drawn without it, and a run could not be repeated"),
    "jax_random_seed_offset": (0, "other random numbers are drawn with it, and a run could not be repeated"),
    "jax_debug_nans": (
        False,
        "it stops at the NaNs by which a history marks what was not measured; simulate(..., debug=True) finds yours",
    ),
    "jax_numpy_dtype_promotion": ("standard", "numbers of several types are combined"),
}
"""The value that each of these must have, and why."""


def check_settings() -> None:
    """Raises `ValueError` if a setting of JAX would change a run's numbers, or break it."""
    for name, (needed, why) in REFUSED.items():
        found = getattr(jax.config, name, needed)
        if (found := getattr(found, "value", found)) != needed:  # some are enumerations
            raise ValueError(
                f"JAX has {name}={found!r}, and runs need {needed!r}: {why}; unset {name.upper()}, or call "
                f"jax.config.update({name!r}, {needed!r})"
            )
