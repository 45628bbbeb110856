"""What each client's device can do."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.arrays import take
from fedjax_sel.pytree import Pytree

UNITS = {
    "compute": "FLOP/s",
    "efficiency": "FLOP/J",
    "memory": "bytes",
    "up": "bytes/s",
    "down": "bytes/s",
    "radio": "W",
}
"""The properties of a device and their units, in the order in which they are stored."""

Numbers = float | Sequence[float | int] | np.ndarray | Array
"""One number for all clients, or one for each."""

MAY_BE_ZERO = ("memory", "radio")


class DeviceProfile(Pytree):
    """The devices of `N` clients; of each property but `radio`, more is better.

    Attributes:
      compute: floating-point operations per second, in training.
      efficiency: floating-point operations per joule; a device that computes draws `compute / efficiency` watts.
      memory: bytes.
      up, down: bytes per second to and from the server.
      radio: watts drawn while sending or receiving.

    >>> DeviceProfile.of(compute=1e9, efficiency=1e9, memory=2e9, up=1e6, down=[3e6, 1e6]).network
    Array([1.5e+06, 1.0e+06], dtype=float32)
    """

    compute: Float[Array, "N"]
    efficiency: Float[Array, "N"]
    memory: Float[Array, "N"]
    up: Float[Array, "N"]
    down: Float[Array, "N"]
    radio: Float[Array, "N"]

    @classmethod
    def of(
        cls,
        *,
        compute: Numbers,
        efficiency: Numbers,
        memory: Numbers,
        up: Numbers,
        down: Numbers,
        radio: Numbers = 1.0,
    ) -> DeviceProfile:
        """Returns checked devices from numbers: for each property, one for all clients or one for each.

        Raises:
          ValueError: the lengths differ, or a number is not allowed.

        >>> DeviceProfile.of(compute=[1e9, 4e9], efficiency=1e9, memory=2e9, up=1e6, down=4e6).num_clients
        2
        """
        given = (compute, efficiency, memory, up, down, radio)
        with np.errstate(over="ignore"):  # what overflows float32 becomes inf, and is refused below
            arrays = [np.asarray(value).astype(np.float32) for value in given]
        clients = max((a.size for a in arrays if a.ndim), default=1)
        whole = [np.full(clients, a) if a.ndim == 0 else a for a in arrays]
        for name, value in zip(UNITS, whole, strict=True):
            check_property(name, value, clients)
        return cls(*(jnp.asarray(value) for value in whole))

    @property
    def num_clients(self) -> int:
        """`N`."""
        return self.compute.shape[-1]

    @property
    def network(self) -> Float[Array, "N"]:
        """Bytes per second of a model's round trip, down and up: the harmonic mean `2 / (1/down + 1/up)`."""
        return 2 / (1 / self.down + 1 / self.up)

    def take(self, client: Int[Array, "m"]) -> DeviceProfile:
        """Returns the devices of these clients; for `PAD_CLIENT`, some client's device."""
        return jax.tree.map(lambda leaf: take(leaf, client), self)

    def check(self, clients: int | None = None) -> None:
        """Raises `ValueError` for a length other than `N`, and for negative, NaN or infinite numbers or a rate of 0."""
        clients = self.num_clients if clients is None else clients
        for name in UNITS:
            check_property(name, np.asarray(getattr(self, name)), clients)


def check_property(name: str, value: np.ndarray, clients: int) -> None:
    """Raises `ValueError` as `DeviceProfile.check` does, for one property."""
    if value.shape != (clients,):
        raise ValueError(
            f"devices: {name} has shape {value.shape}, but there are N = {clients} clients; "
            "one number a client is needed"
        )
    bad = ~is_possible(name, value)
    if bad.any():
        raise ValueError(
            f"devices: {name} of client {bad.argmax()} is {value[bad.argmax()]} {UNITS[name]} "
            f"({bad.sum()} of {clients} clients); it must be {say_possible(name)}"
        )


def is_possible(name: str, value: np.ndarray | float) -> Bool[np.ndarray, "*N"]:
    """Returns whether a device can have these values of a property."""
    return np.isfinite(value) & np.asarray(value >= 0 if name in MAY_BE_ZERO else value > 0)


def say_possible(name: str) -> str:
    """Returns in words which values of a property a device can have."""
    return f"finite and {'0 or above' if name in MAY_BE_ZERO else 'above 0'}"


def features(devices: DeviceProfile, scale: str = "range") -> Float[Array, "4 N"]:
    """Returns the properties that the device heuristic uses, without units: compute, efficiency, memory, network.

    Args:
      devices: of all clients.
      scale: `"range"`, `(f - min) / (max - min)`, and 1 where all are equal; `"max"`, `f / max`, which recovers the
        numbers in (0, 1] that the law `Uniform` drew, up to a factor for each property.

    >>> features(DeviceProfile.of(compute=[1e9, 4e9, 2e9], efficiency=1e9, memory=2e9, up=1e6, down=1e6), "max")[0]
    Array([0.25, 1.  , 0.5 ], dtype=float32)
    """
    check_scale(scale)
    f = jnp.stack([devices.compute, devices.efficiency, devices.memory, devices.network])
    top = f.max(1, keepdims=True)
    if scale == "max":
        return f / jnp.where(top > 0, top, 1)
    low = f.min(1, keepdims=True)
    return jnp.where(top > low, (f - low) / jnp.where(top > low, top - low, 1), 1.0)


def check_scale(scale: str) -> None:
    """Raises `ValueError` for an unknown scale."""
    if scale not in ("range", "max"):
        raise ValueError(f"scale of device features is {scale!r}; it must be 'range' or 'max'")


def watts(devices: DeviceProfile) -> Float[Array, "N"]:
    """Returns the power that each device draws while it computes.

    >>> watts(DeviceProfile.of(compute=4e9, efficiency=1e9, memory=2e9, up=1e6, down=4e6))
    Array([4.], dtype=float32)
    """
    return devices.compute / devices.efficiency
