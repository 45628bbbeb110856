"""The simulated clock: how long clients take, when the server stops waiting, and the energy they spend.

A client's turn is a download, its computation and an upload, one after the other. Cohort members work in parallel, so a
round lasts as long as its slowest member, or until a deadline.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel.devices.profile import DeviceProfile, watts
from fedjax_sel.pytree import Pytree, Scalar, param, static


class Timing(Pytree):
    """Seconds of each part of some clients' turns.

    Attributes:
      download: from the server.
      compute: for all its floating-point operations.
      upload: to the server.

    >>> Timing(jnp.array([1.0]), jnp.array([5.0]), jnp.array([2.0])).total
    Array([8.], dtype=float32)
    """

    download: Float[Array, "*k"]
    compute: Float[Array, "*k"]
    upload: Float[Array, "*k"]

    @property
    def total(self) -> Float[Array, "*k"]:
        """Seconds from the beginning of the download to the end of the upload."""
        return self.download + self.compute + self.upload


def timing(
    devices: DeviceProfile,
    flops: Float[Array, "*k"],
    down: Float[Array, "*k"] | Scalar,
    up: Float[Array, "*k"] | Scalar,
) -> Timing:
    """Returns `t_i = down_i / rate + flops_i / rate + up_i / rate`, in seconds.

    Args:
      devices: of these clients.
      flops: what each computes.
      down: bytes each receives.
      up: bytes each sends.

    >>> phones = DeviceProfile.of(compute=[1e9, 4e9], efficiency=1e9, memory=2e9, up=1e6, down=4e6)
    >>> timing(phones, flops=jnp.array([8e9, 8e9]), down=4e6, up=1e6).total
    Array([10.,  4.], dtype=float32)
    """
    return Timing(down / devices.down, flops / devices.compute, up / devices.up)


class Deadline(Pytree):
    """When the server stops waiting, and what happens to late clients.

    Attributes:
      seconds: from the start of training, after the signals measured before it; infinite: the server waits for all
        clients.
      late: `"drop"`, a member that would be late returns nothing; `"partial"`, it stops computing in time for its
        upload and returns what it has, or nothing if not even the transfers fit.

    Source: dropping, Bonawitz et al., "Towards Federated Learning at Scale", 2019, https://arxiv.org/abs/1902.01046;
    partial work, Li et al., "Federated Optimization in Heterogeneous Networks", 2020,
    https://arxiv.org/abs/1812.06127.

    >>> timing = Timing(jnp.array([1.0, 1.0]), jnp.array([2.0, 8.0]), jnp.array([1.0, 1.0]))
    >>> Deadline(6.0, late="partial").share(timing)
    Array([1. , 0.5], dtype=float32)
    """

    seconds: Scalar = param(default=math.inf, above=0)
    late: str = static(default="drop", choices=("drop", "partial"))

    def share(self, timing: Timing, fixed: Float[Array, "*k"] | Scalar = 0.0) -> Float[Array, "*k"]:
        """Returns the share of its training, in [0, 1], that each client returns; 0: it returns nothing.

        Args:
          timing: of the whole turns.
          fixed: seconds of its computation that are not training and cannot be left out.
        """
        if self.late == "drop":
            return jnp.where(timing.total <= self.seconds, 1.0, 0.0)
        room = self.seconds - timing.download - timing.upload - fixed
        part = jnp.maximum(room, 0) / jnp.maximum(timing.compute - fixed, jnp.finfo(jnp.float32).tiny)
        return jnp.where(timing.total <= self.seconds, 1.0, jnp.minimum(part, 1.0))

    def spent(self, timing: Timing, share: Float[Array, "*k"], fixed: Float[Array, "*k"] | Scalar = 0.0) -> Timing:
        """Returns the seconds that each client was busy; a client that returns nothing works until the deadline.

        Args:
          timing: of the whole turns.
          share: as returned by `share`, or less if only whole steps count.
          fixed: as for `share`.
        """
        returns = share > 0
        download = jnp.minimum(timing.download, self.seconds)
        compute = jnp.minimum(timing.compute, self.seconds - download)
        upload = jnp.minimum(timing.upload, self.seconds - download - compute)
        return Timing(
            jnp.where(returns, timing.download, download),
            jnp.where(returns, fixed + share * (timing.compute - fixed), compute),
            jnp.where(returns, timing.upload, upload),
        )


def slowest(timing: Timing, mask: Bool[Array, "m"]) -> Float[Array, ""]:
    """Returns the seconds until the last client in `mask` is done; 0 if there is none.

    >>> ones = jnp.ones(3)
    >>> slowest(Timing(ones, jnp.array([1.0, 5.0, 9.0]), ones), jnp.array([True, True, False]))
    Array(7., dtype=float32)
    """
    return jnp.max(jnp.where(mask, timing.total, 0.0), initial=0.0)


def joules(devices: DeviceProfile, timing: Timing) -> Float[Array, "*k"]:
    """Returns the energy of each client, `E_i = W_i t_compute + radio_i (t_down + t_up)`, in joules.

    `W_i = compute_i / efficiency_i` is its power while it computes.

    >>> phone = DeviceProfile.of(compute=4e9, efficiency=1e9, memory=2e9, up=1e6, down=4e6, radio=0.5)
    >>> joules(phone, Timing(jnp.array([1.0]), jnp.array([2.0]), jnp.array([1.0])))
    Array([9.], dtype=float32)
    """
    return watts(devices) * timing.compute + devices.radio * (timing.download + timing.upload)
