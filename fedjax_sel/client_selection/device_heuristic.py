"""The set of devices with the best heuristic `H(S)`: fast, frugal and roomy on average, and none with a bad network."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from fedjax_sel.client_selection._device_heuristic import Weights
from fedjax_sel.client_selection._device_solvers import SOLVERS, check_enumerable
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.client_selection._system import check_devices
from fedjax_sel.devices.profile import features
from fedjax_sel.protocols import ClientSelector, Host, Upfront
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import BYTES, Cohort, Context, PRNGKey, StrategyState

__all__ = ["DeviceHeuristic"]

PROPERTIES = 4
"""Numbers that a device reports: f1 to f4."""


class DeviceHeuristic(ClientSelector):
    """The `m` devices that maximise `H(S) = α mean f1 + β mean f2 + γ mean f3 + δ min f4`.

    f1 to f4 are compute, energy efficiency, memory and network, scaled. They do not change from round to round, so
    while all clients are available neither does the cohort, and the other clients' data is never seen. The devices
    report them once, which is billed to the first round.

    Attributes:
      alpha: weight of compute, 0 or above.
      beta: weight of energy efficiency.
      gamma: weight of memory.
      delta: weight of the worst network.
      solver: `"exact"`, `"greedy"` (the source's, nearly always as good) or `"exhaustive"` (N <= 16).
      scale: of the properties, as in `devices.profile.features`.

    Source: Mouli, "Device Selection Algorithm for Federated Learning", thesis, IIT Patna, 2024, equations (3.4) to
    (3.8) and Algorithm 1; m = ⌈εN⌉ there.

    >>> DeviceHeuristic(delta=0.5, solver="greedy").solver
    'greedy'
    """

    ordered: ClassVar[bool] = True
    alpha: Scalar = param(default=0.25, low=0)
    beta: Scalar = param(default=0.25, low=0)
    gamma: Scalar = param(default=0.25, low=0)
    delta: Scalar = param(default=0.25, low=0)
    solver: str = static(default="exact", choices=SOLVERS)
    scale: str = static(default="range", choices=["range", "max"])

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Returns no state; raises `ValueError` without devices, or with too many clients for the solver."""
        check_devices("device_heuristic", ctx)
        if self.solver == "exhaustive":
            check_enumerable(ctx.num_clients, ctx.m)
        return ()

    def upfront(self, ctx: Context, host: Host) -> Upfront:
        """Returns the cost of the devices' reports, four numbers each, which take no round of their own."""
        return Upfront(flops=np.zeros(ctx.num_clients), down=0.0, up=float(BYTES * PROPERTIES))

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """Returns the best set among those available."""
        assert ctx.devices is not None
        weights = Weights(self.alpha, self.beta, self.gamma, self.delta)
        chosen = SOLVERS[self.solver](features(ctx.devices, self.scale), weights, ctx.m, ctx.available).mask
        client = jnp.argsort(~chosen, stable=True)[: ctx.m]
        return cohort_of(client, chosen[client])
