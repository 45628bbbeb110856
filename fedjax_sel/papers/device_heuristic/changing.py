"""Devices that change between rounds, so that selecting again matters: batteries drain, networks are redrawn.

The source selects anew in every round ("reiterated at each learning round"), but its properties do not change, so
neither does the set. Here, every device's network is redrawn in each round, and training drains its battery: f2 is its
energy efficiency times the fraction of the charge that is left, and a device that cannot afford a round is unavailable.
Before a selection, every available device reports its four numbers, which takes time, energy and bytes: in every round,
only in the first, or never. The rounds themselves are run by the library, with that round's devices.
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
from fedjax_sel.client_selection.device_heuristic import PROPERTIES
from fedjax_sel.compiled import jit
from fedjax_sel.config import Run, build, resolve
from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.clock import Timing, joules, slowest, timing
from fedjax_sel.devices.profile import DeviceProfile, features
from fedjax_sel.engine.experiment import Experiment
from fedjax_sel.engine.init import init_run
from fedjax_sel.engine.keys import Purpose, key_for, make_key
from fedjax_sel.engine.layout import ONE_BY_ONE
from fedjax_sel.engine.round import make_context, round_step
from fedjax_sel.engine.state import RoundState
from fedjax_sel.papers.device_heuristic.cells import PARTITIONS, PROPOSED, list_cells, name_experiment
from fedjax_sel.protocols import ClientSelector, Host
from fedjax_sel.types import BYTES, Cohort, Context, PRNGKey

AGAIN, ONCE, CHANCE = "selected in every round", "selected once", "random in every round"
WAYS = (AGAIN, ONCE, CHANCE)
"""How the devices of a round are chosen."""

LASTS = 0.5
"""Fraction of the rounds that a full battery lasts if its device trains in every round with its initial network."""

OTHERS = (0.25, 1.0, 2.0)
"""Other such fractions that are studied."""

NETWORKS = 0x4E7
"""First word of the random stream of the networks."""


class Prescribed(ClientSelector):
    """Selects the devices that its state marks, which is set from outside."""

    def init(self, key: PRNGKey, ctx: Context, host: Host) -> Bool[Array, "N"]:
        """Returns a state that marks no device."""
        return jnp.zeros(ctx.num_clients, bool)

    def select(self, key: PRNGKey, state: Bool[Array, "N"], ctx: Context) -> Cohort:
        """Returns the marked devices, at most `m`."""
        client = jnp.argsort(~state, stable=True)[: ctx.m]
        return cohort_of(client, state[client])


def study_changing(scale: str, seeds: Sequence[int], _: Path) -> dict[str, Any]:
    """Returns each way's results by partition and round at ε = 0.5; for other batteries, final accuracy and members."""
    found, others = {}, {f"{lasts:g}": {} for lasts in OTHERS}
    for partition in PARTITIONS:
        (cell,) = [c for c in list_cells(scale) if c.key == (name_experiment(partition, 0.5), PROPOSED)]
        run = build(resolve({"seeds": list(seeds), **cell.config}))
        found[partition] = {way: follow_seeds(run, way, LASTS) for way in WAYS}
        for lasts in OTHERS:
            numbers = {way: follow_seeds(run, way, lasts) for way in WAYS}
            others[f"{lasts:g}"][partition] = {
                way: {"final_accuracy": of["accuracy"][:, -1], "members": of["members"].mean(1)}
                for way, of in numbers.items()
            }
    return {"rounds": run.experiment.rounds, "partitions": found, "other batteries": others}


def follow_seeds(run: Run, way: str, lasts: float) -> dict[str, Any]:
    """Returns one way's results by seed and round; a full battery lasts for the fraction `lasts` of the rounds."""
    experiment = replace(run.experiment, client_selection=Prescribed())
    rows = []
    for seed, data in zip(run.seeds, run.data.draws(run.seeds), strict=True):
        key, rounds = make_key(seed), experiment.rounds
        state = init_run(experiment, data, key, ONE_BY_ONE)
        network = 1 - np.random.default_rng((NETWORKS, seed)).random((rounds, data.num_clients), np.float32)
        given = jnp.int32(WAYS.index(way)), jnp.float32(lasts)  # traced, so that one program serves all
        rows.append(follow(experiment, jax.tree.map(jnp.asarray, data), key, state, jnp.asarray(network), *given))
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


@jit()
def follow(
    experiment: Experiment,
    data: FederatedData,
    key: PRNGKey,
    state: RoundState,
    network: Float[Array, "T N"],
    way: Int[Array, ""],
    lasts: Float[Array, ""],
) -> dict[str, Array]:
    """Returns the accuracy, members, seconds, joules and reported bytes of every round.

    Args:
      experiment: with `Prescribed` as its selector.
      data, key, state: of one seed.
      network: of each device in each round, as a fraction of the best.
      way: how devices are chosen, an index into `WAYS`.
      lasts: fraction of the rounds that a full battery lasts.
    """
    assert data.devices is not None
    devices = data.devices
    full = lasts * len(network) * price_round(experiment, data, key, jnp.int32(0))
    s = experiment.count_cohort(data.num_clients)

    def step(carry, given):
        state, charge, first = carry
        t, quality = given
        now = replace(data, devices=change_network(devices, quality))
        price = price_round(experiment, now, key, t)
        assert now.devices is not None
        telling = jnp.stack([t >= 0, t == 0, t < 0])[way]  # in the order of `WAYS`
        turn = time_telling(now.devices)
        told = jnp.where(telling, joules(now.devices, turn), 0)
        able = charge >= price + told
        f = features(now.devices, "max")
        f = f.at[1].multiply(charge / full)
        best = greedy(f, Weights(), s, able).mask
        first = jnp.where(t == 0, best, first)
        noise = jax.random.uniform(key_for(key, Purpose.SELECT, t), able.shape)
        drawn = able & (jnp.argsort(jnp.argsort(jnp.where(able, noise, jnp.inf))) < s)
        chosen = jnp.stack([best, first & able, drawn])[way]
        state, record = round_step(experiment, now, key, ONE_BY_ONE, replace(state, client_selection=chosen), t)
        seconds, spent = record.ledger.seconds, record.ledger.joules
        assert seconds is not None
        assert spent is not None
        out = {
            "accuracy": record.accuracy,
            "members": chosen.sum(),
            "seconds": seconds + slowest(turn, able & telling),
            "joules": spent + jnp.where(able, told, 0).sum(),
            "bytes_told": BYTES * PROPERTIES * (able & telling).sum(),
        }
        return (state, charge - jnp.where(chosen, price, 0) - jnp.where(able, told, 0), first), out

    start = (state, full, jnp.zeros(data.num_clients, bool))
    return jax.lax.scan(step, start, (jnp.arange(len(network)), network))[1]


def change_network(devices: DeviceProfile, quality: Float[Array, "N"]) -> DeviceProfile:
    """Returns the devices with other networks, whose uplink and downlink speeds keep their proportion.

    Args:
      devices: as they were drawn.
      quality: of each network, as a fraction of the best drawn.
    """
    return replace(devices, up=devices.up.max() * quality, down=devices.down.max() * quality)


def time_telling(devices: DeviceProfile) -> Timing:
    """Returns the time that each device takes to send the numbers of its properties."""
    return timing(devices, jnp.zeros(devices.num_clients), 0.0, float(BYTES * PROPERTIES))


def price_round(experiment: Experiment, data: FederatedData, key: PRNGKey, t: Any) -> Float[Array, "N"]:
    """Returns the joules that a round takes each device if it trains on all its examples."""
    ctx = make_context(experiment, data, key, t)
    assert ctx.timing is not None
    assert data.devices is not None
    return joules(data.devices, ctx.timing)
