"""Distributions from which devices are drawn, on the host, by seed.

Client `i` gets the same device whatever `N` is, unless a law fixes how many clients a tier has. The up and down rates
of a client have a fixed ratio: a connection is good or bad as a whole. The default levels are those of a phone, in
order of magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedjax_sel.arrays import divide_in_proportion
from fedjax_sel.devices.profile import UNITS, DeviceProfile, is_possible, say_possible
from fedjax_sel.pytree import is_real, show

DEVICES = 0x0DE5
"""First word of the random stream, so that no two uses of a seed draw the same numbers."""


@dataclass(frozen=True)
class Uniform:
    """Every property uniform between `low` and 1 times its largest value.

    Compute, efficiency, memory and network are independent. With `low = 0` the features of the heuristic,
    `features(devices, "max")`, are U(0, 1], which seems to be how the heuristic's source draws them (it shows a figure
    without units and states no distribution).

    Attributes:
      low: smallest share of the largest value, in [0, 1].
      compute: operations per second, the largest value.
      efficiency: operations per joule, the largest value.
      memory: bytes, the largest value.
      up: bytes per second, the largest value.
      down: bytes per second, the largest value.
      radio: watts, the same for all.

    Source: Mouli, "Device Selection Algorithm for Federated Learning", thesis, IIT Patna, 2024, figure 1.2.

    >>> Uniform(low=0.5).draw(seed=0, clients=8).num_clients
    8
    """

    low: float = 0.0
    compute: float = 1e10
    efficiency: float = 2e9
    memory: float = 4e9
    up: float = 1e6
    down: float = 4e6
    radio: float = 1.0

    def draw(self, seed: int, clients: int) -> DeviceProfile:
        """Returns the devices of `N` clients."""
        if not (is_real(self.low) and 0 <= self.low <= 1):
            raise ValueError(f"law Uniform: low is {self.low!r}; it is a share of the largest value, in [0, 1]")
        chance = 1 - stream(seed, clients).random((clients, 4))  # in (0, 1]: no device has rate 0
        return _scale(self, self.low + (1 - self.low) * chance)


@dataclass(frozen=True)
class LogNormal:
    """Every property `median * exp(spread * z)`, z standard normal.

    Compute, efficiency, memory and network are independent.

    Attributes:
      spread: standard deviation of the logarithm; 0.6 puts a factor of 4.7 between the first and the last decile.
      compute: operations per second, the median.
      efficiency: operations per joule, the median.
      memory: bytes, the median.
      up: bytes per second, the median.
      down: bytes per second, the median.
      radio: watts, the same for all.

    >>> LogNormal(spread=0.0).draw(seed=0, clients=8).num_clients
    8
    """

    spread: float = 0.6
    compute: float = 1e10
    efficiency: float = 2e9
    memory: float = 4e9
    up: float = 1e6
    down: float = 4e6
    radio: float = 1.0

    def draw(self, seed: int, clients: int) -> DeviceProfile:
        """Returns the devices of `N` clients."""
        if not (is_real(self.spread) and self.spread >= 0):
            raise ValueError(f"law LogNormal: spread is {self.spread!r}; a standard deviation is 0 or above")
        return _scale(self, np.exp(self.spread * stream(seed, clients).standard_normal((clients, 4))))


@dataclass(frozen=True)
class Tiers:
    """Tiers of equal devices, for example clients with different numbers of cores; their members are drawn.

    Attributes:
      compute_factor: factor on the computing rate in each tier; all tiers need the same energy per operation.
      network_factor: factor on both network rates in each tier; None: 1.
      share: of the clients in each tier, in any unit; None: equal. Rounded to whole clients by largest remainder.
      compute: operations per second, of a device of factor 1.
      efficiency: operations per joule, of a device of factor 1.
      memory: bytes, of a device of factor 1.
      up: bytes per second, of a device of factor 1.
      down: bytes per second, of a device of factor 1.
      radio: watts, the same for all.

    Source: in the style of Chai et al., "TiFL: A Tier-based Federated Learning System", 2020,
    https://arxiv.org/abs/2001.09249, whose clients are five groups by cores; the defaults are ours.

    >>> Tiers(share=(1.0, 1.0, 1.0, 1.0, 0.0)).draw(seed=0, clients=8).num_clients
    8
    """

    compute_factor: tuple[float, ...] = (4.0, 2.0, 1.0, 0.5, 0.1)
    network_factor: tuple[float, ...] | None = None
    share: tuple[float, ...] | None = None
    compute: float = 1e10
    efficiency: float = 2e9
    memory: float = 4e9
    up: float = 1e6
    down: float = 4e6
    radio: float = 1.0

    def draw(self, seed: int, clients: int) -> DeviceProfile:
        """Returns the devices of `N` clients."""
        tiers = len(self.compute_factor)
        network = (1.0,) * tiers if self.network_factor is None else self.network_factor
        share = np.asarray((1.0,) * tiers if self.share is None else self.share)
        if not tiers or len(network) != tiers or len(share) != tiers:
            raise ValueError(
                f"law Tiers: compute_factor has {tiers}, network_factor {len(network)} and share {len(share)} numbers; "
                "one a tier is needed, and at least one tier"
            )
        if not (np.isfinite(share).all() and (share >= 0).all() and share.sum() > 0):
            raise ValueError(f"law Tiers: share is {self.share}; shares are 0 or above, and not all 0")
        tier = stream(seed, clients).permutation(np.repeat(np.arange(tiers), divide_in_proportion(share, clients)))
        one = np.ones(clients)
        return _scale(self, np.stack([np.asarray(self.compute_factor)[tier], one, one, np.asarray(network)[tier]], 1))


def stream(seed: int, clients: int) -> np.random.Generator:
    """Returns the generator of one seed's devices; raises `ValueError` for a negative seed or without clients."""
    if seed < 0 or clients < 1:
        raise ValueError(
            f"devices are to be drawn for seed {seed}, N = {clients}; seeds are 0 or above, and N at least 1"
        )
    return np.random.default_rng((DEVICES, seed))


def _scale(law: Uniform | LogNormal | Tiers, factor: np.ndarray) -> DeviceProfile:
    """Returns the law's levels times each client's factors of compute, efficiency, memory and network, `[N, 4]`."""
    for name, unit in UNITS.items():
        level = getattr(law, name)
        if not (is_real(level) and is_possible(name, level)):
            given = f"{level} {unit}" if is_real(level) else show(level)
            raise ValueError(f"law {type(law).__name__}: {name} is {given}; it must be {say_possible(name)}")
    compute, efficiency, memory, network = factor.T
    return DeviceProfile.of(
        compute=law.compute * compute,
        efficiency=law.efficiency * efficiency,
        memory=law.memory * memory,
        up=law.up * network,
        down=law.down * network,
        radio=np.full(len(factor), law.radio),
    )
