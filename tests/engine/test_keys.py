"""Keys of a run: every draw has its own, which no strategy can get by splitting another."""

from collections import defaultdict

import jax
import jax.numpy as jnp

from fedjax_sel import Experiment, simulate
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.devices.availability import Availability
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.protocols import ClientSignal, DataSelector, Prepared, Signals, UpfrontSignal
from fedjax_sel.pytree import static
from tests.quadratic import TASK, A, clients

SPLIT = 16
GIVEN = defaultdict(set)
"""The keys that each use was given, and the parts into which it may split them."""


def keep(use, key):
    keys = jnp.concatenate([key[None], jax.random.split(key, SPLIT)])
    jax.debug.callback(lambda data: GIVEN[use].update(map(tuple, data.tolist())), jax.random.key_data(keys))


class Everybody(Availability):
    """All clients."""

    use: str = static()

    def available(self, key, round, num_clients):
        keep(self.use, key)
        return jnp.ones(num_clients, bool)


class Zero(ClientSignal):
    """0 of every client."""

    use: str = static()

    def measure(self, task, variables, batch, key):
        keep(self.use, key)
        return jnp.zeros(())


class ZeroUpfront(UpfrontSignal):
    """0 of every client, before round 0."""

    use: str = static()

    def measure(self, key, host):
        keep(self.use, key)
        return jnp.zeros(host.data.num_clients)


class Selector(Uniform):
    """Uniform cohorts."""

    def signals(self):
        upfront = {"first": ZeroUpfront("upfront 1"), "second": ZeroUpfront("upfront 2")}
        return Signals(before={"one": Zero("before")}, trained={"other": Zero("trained")}, upfront=upfront)

    def init(self, key, ctx, host, **upfront):
        keep("init", key)
        return ()

    def candidates(self, key, state, ctx):
        keep("candidates", key)

    def select(self, key, state, ctx, **before):
        keep("select", key)
        return super().select(key, state, ctx)

    def accept(self, key, state, ctx, cohort, **trained):
        keep("accept", key)
        return cohort

    def observe(self, key, state, ctx, cohort, **told):
        keep("observe", key)
        return state


class Data(DataSelector):
    """All examples."""

    def signals(self):
        return {"one": Zero("signals of examples")}

    def prepare(self, key, ctx, host):
        keep("prepare", key)
        return Prepared()

    def select(self, key, state, valid, **signals):
        keep("select examples", key)
        return valid

    def observe(self, key, state, weight, **signals):
        keep("observe examples", key)
        return state

    def merge(self, key, server, ctx, cohort, reports):
        keep("merge", key)
        return server


class Trainer(SGD):
    """SGD."""

    def train(self, key, *given, **named):
        keep("train", key)
        return super().train(key, *given, **named)


class Rule(Mean):
    """The mean."""

    def perturb(self, key, change, slots):
        keep("perturb", key)
        return change


def test_no_two_draws_of_a_run_share_a_key_or_a_part_of_one():
    GIVEN.clear()
    parts = {"client_selection": Selector(), "data_selection": Data(), "aggregation": Rule()}
    parts |= {"availability": Everybody("available"), "volatility": Everybody("returns")}
    m, rounds = 3, 2
    run = Experiment(TASK, **parts, local_training=Trainer(0.1), cohort_size=m, rounds=rounds)
    simulate(run, clients(), seeds=[0])
    jax.effects_barrier()
    once = ("init", "prepare", "upfront 1", "upfront 2")
    per_round = ("available", "returns", "candidates", "select", "accept", "observe", "merge", "perturb")
    per_member = ("trained", "signals of examples", "select examples", "observe examples", "train")
    expected = {"before": rounds * len(A)}
    for uses, times in ((once, 1), (per_round, rounds), (per_member, rounds * m)):
        expected |= dict.fromkeys(uses, times)
    assert {use: len(keys) / (1 + SPLIT) for use, keys in GIVEN.items()} == expected
    assert len(set().union(*GIVEN.values())) == sum(map(len, GIVEN.values()))
