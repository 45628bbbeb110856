"""The set of devices with the best heuristic `H(S)`: fast, frugal and roomy on average, and none with a bad network."""

import jax.numpy as jnp

from fedjax_sel.catalog import check_name
from fedjax_sel.client_selection._device_heuristic import Weights
from fedjax_sel.client_selection._device_solvers import SOLVERS, check_enumerable
from fedjax_sel.client_selection._ops import check_number, cohort_of
from fedjax_sel.client_selection._system import check_devices
from fedjax_sel.devices.profile import check_scale, features
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.pytree import Scalar, static
from fedjax_sel.types import Cohort, Context, PRNGKey, StrategyState

__all__ = ["DeviceHeuristic"]


class DeviceHeuristic(ClientSelector):
    """The `m` devices that maximise `H(S) = α mean f1 + β mean f2 + γ mean f3 + δ min f4`.

    f1 to f4 are compute, energy efficiency, memory and network, scaled. They do not change from round to round, and so,
    while everybody is available, neither does the cohort: the others' data is never seen.

    Attributes:
      alpha: weight of compute, 0 or above.
      beta: weight of energy efficiency.
      gamma: weight of memory.
      delta: weight of the worst network.
      solver: `"exact"`, `"greedy"` (the source's, nearly always as good) or `"exhaustive"` (N <= 16).
      scale: of the properties, as in `devices.profile.features`.

    Source: Mouli, "Device Selection Algorithm for Federated Learning", thesis, IIT Patna, 2024, equations (3.4) to
    (3.8) and Algorithm 1; m = ⌈εN⌉ there.
    """

    alpha: Scalar = 0.25
    beta: Scalar = 0.25
    gamma: Scalar = 0.25
    delta: Scalar = 0.25
    solver: str = static(default="exact")
    scale: str = static(default="range")

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> StrategyState:
        """Nothing; `ValueError` without devices, for a negative weight, or where the solver cannot serve so many."""
        check_devices("device_heuristic", ctx)
        for name in ("alpha", "beta", "gamma", "delta"):
            check_number(f"device_heuristic: {name}", getattr(self, name), 0)
        check_name("solver of device_heuristic", self.solver, SOLVERS)
        check_scale(self.scale)
        if self.solver == "exhaustive":
            check_enumerable(ctx.num_clients, ctx.m)
        return ()

    def select(self, key: PRNGKey, state: StrategyState, ctx: Context) -> Cohort:
        """The best set among those available."""
        assert ctx.devices is not None
        weights = Weights(self.alpha, self.beta, self.gamma, self.delta)
        chosen = SOLVERS[self.solver](features(ctx.devices, self.scale), weights, ctx.m, ctx.available).mask
        client = jnp.argsort(~chosen, stable=True)[: ctx.m]
        return cohort_of(client, chosen[client])
