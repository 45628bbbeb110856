"""Devices that change between rounds, so that selecting again means something: batteries drain, the network is redrawn.

The source selects anew in every round ("reiterated at each learning round"), but its properties do not change, and
neither does the set. Here the network of every device is drawn afresh in each round, and training empties its battery:
f2 is its energy efficiency times the share of the charge that is left, and a device that cannot pay a round is not
available. The rounds themselves are the library's, on that round's devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_sel.client_selection._device_heuristic import Weights
from fedjax_sel.client_selection._device_solvers import greedy
from fedjax_sel.client_selection._ops import cohort_of
from fedjax_sel.config import Run, build, resolve
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.clock import joules
from fedjax_sel.devices.profile import DeviceProfile, features
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.init import init_runs
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.engine.layout import Layout
from fedjax_sel.engine.round import make_context, round_step
from fedjax_sel.engine.state import RoundState
from fedjax_sel.papers.device_heuristic.cells import PARTITIONS, PROPOSED, list_cells, name_experiment
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.pytree import jit
from fedjax_sel.types import Cohort, Context, PRNGKey

AGAIN, ONCE, CHANCE = "selected in every round", "selected once", "random in every round"
WAYS = (AGAIN, ONCE, CHANCE)
"""How the devices of a round are chosen."""

LASTS = 0.5
"""Share of the rounds that a full battery lasts if its device trains in each of them."""

LAYOUT = Layout(clients=1, seeds="scan")
NETWORKS = 0x4E7
"""First word of the random stream of the networks."""


class Prescribed(ClientSelector):
    """The devices that its state marks; who they are is decided outside."""

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Bool[Array, "N"]:
        """Returns nobody."""
        return jnp.zeros(ctx.num_clients, bool)

    def select(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context) -> Cohort:
        """Returns those marked, at most `m`."""
        client = jnp.argsort(~state, stable=True)[: ctx.m]
        return cohort_of(client, state[client])


def study_changing(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns accuracy, members, seconds and joules by round, of each way and partition, half of the devices wanted."""
    found = {}
    for partition in PARTITIONS:
        (cell,) = [c for c in list_cells(scale) if c.key == (name_experiment(partition, 0.5), PROPOSED)]
        run = build(resolve({"seeds": list(seeds), **cell.config}))
        found[partition] = {way: follow_seeds(run, way) for way in WAYS}
    return {"rounds": run.experiment.rounds, "partitions": found}


def follow_seeds(run: Run, way: str) -> dict[str, Any]:
    """Returns one way's numbers, of every seed and round."""
    experiment = replace(run.experiment, client_selection=Prescribed())
    rows = []
    for seed, data in zip(run.seeds, run.data.draws(run.seeds), strict=True):
        key, rounds = jax.random.key(seed), experiment.rounds
        state, _ = init_runs([experiment], [data], key[None], LAYOUT)
        state = jax.tree.map(lambda leaf: leaf[0], state)
        network = 1 - np.random.default_rng((NETWORKS, seed)).random((rounds, data.num_clients), np.float32)
        number = jnp.int32(WAYS.index(way))  # traced, so that one program serves all ways
        rows.append(follow(experiment, jax.tree.map(jnp.asarray, data), key, state, jnp.asarray(network), number))
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


@jit()
def follow(
    experiment: Experiment,
    data: FederatedData,
    key: PRNGKey,
    state: RoundState,
    network: Float[Array, "T N"],
    way: Int[Array, ""],
) -> dict[str, Array]:
    """Returns accuracy, members, seconds and joules of every round.

    Args:
      experiment: with `Prescribed` as its selector.
      data, key, state: of one seed.
      network: of each round, as a share of the best.
      way: how devices are chosen, a place in `WAYS`.
    """
    assert data.devices is not None
    devices = data.devices
    full = LASTS * len(network) * price_round(experiment, data, key, jnp.int32(0))
    s = experiment.count_cohort(data.num_clients)

    def step(carry, given):
        state, charge, first = carry
        t, quality = given
        now = replace(data, devices=change_network(devices, quality))
        price = price_round(experiment, now, key, t)
        able = charge >= price
        assert now.devices is not None
        f = features(now.devices, "max")
        f = f.at[1].multiply(charge / full)
        best = greedy(f, Weights(), s, able).mask
        first = jnp.where(t == 0, best, first)
        noise = jax.random.uniform(key_for(key, Purpose.SELECT, t), able.shape)
        drawn = able & (jnp.argsort(jnp.argsort(jnp.where(able, noise, jnp.inf))) < s)
        chosen = jnp.stack([best, first & able, drawn])[way]
        state, record = round_step(experiment, now, key, replace(state, client_selection=chosen), t, LAYOUT)
        out = {
            "accuracy": record.accuracy,
            "members": chosen.sum(),
            "seconds": record.ledger.seconds,
            "joules": record.ledger.joules,
        }
        return (state, charge - jnp.where(chosen, price, 0), first), out

    start = (state, full, jnp.zeros(data.num_clients, bool))
    return jax.lax.scan(step, start, (jnp.arange(len(network)), network))[1]


def change_network(devices: DeviceProfile, quality: Float[Array, "N"]) -> DeviceProfile:
    """Returns the devices with another network, up and down in their fixed proportion.

    Args:
      devices: as they were drawn.
      quality: of each network, as a share of the best among them.
    """
    return replace(devices, up=devices.up.max() * quality, down=devices.down.max() * quality)


def price_round(experiment: Experiment, data: FederatedData, key: PRNGKey, t: Any) -> Float[Array, "N"]:
    """Returns the joules of a round of every device, if it trains on all its examples."""
    ctx = make_context(experiment, data, key, t)
    assert ctx.timing is not None
    assert data.devices is not None
    return joules(data.devices, ctx.timing)
