"""Keys beside a strategy's own: no part of a split of it, which a strategy may draw from too."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import Experiment, simulate
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.protocols import ClientSignal, DataSelector, Prepared, Signals, UpfrontSignal
from tests.quadratic import TASK, A, clients

SPLIT = 16


class DrawnUpfront(UpfrontSignal):
    """A number that each client draws."""

    name = "drawn"

    def measure(self, key, host):
        return jax.random.uniform(key, (host.data.num_clients,))


class DrawnByClient(ClientSignal):
    """A number that a client draws."""

    name = "drawn"

    def measure(self, task, variables, batch, key):
        return jax.random.uniform(key)


HEARD = []


def hear(what, drawn, parts):
    jax.debug.callback(lambda *values: HEARD.append((what, *map(np.asarray, values))), drawn, parts)


def draw_from_parts(key):
    """What could be drawn from each part of a split."""
    return jax.vmap(jax.random.uniform)(jax.random.split(key, SPLIT))


class SplittingSelector(Uniform):
    """Splits the key of `init`."""

    def signals(self):
        return Signals(upfront=[DrawnUpfront()])

    def init(self, key, ctx, host, *, drawn):
        parts = jax.vmap(lambda k: jax.random.uniform(k, drawn.shape))(jax.random.split(key, SPLIT))
        HEARD.append(("upfront", np.asarray(drawn), np.asarray(parts)))
        return ()


class SplittingData(DataSelector):
    """Splits the keys of `select`, `prepare` and `merge`."""

    def signals(self):
        return {"drawn": DrawnByClient()}

    def prepare(self, key, ctx, host):
        return Prepared(server=draw_from_parts(key))

    def select(self, key, state, valid, *, drawn):
        hear("signals", drawn, draw_from_parts(key))
        return valid

    def observe(self, key, state, weight, *, drawn):
        given = [key_for(jax.random.key(0), Purpose.DATA, 0, client) for client in range(len(A))]  # to `select`
        hear("observe", jax.random.uniform(key), jnp.concatenate([draw_from_parts(one) for one in given]))
        return state

    def merge(self, key, server, ctx, cohort, reports):
        hear("merge", draw_from_parts(key), server)
        return server


def test_what_is_drawn_beside_a_strategy_is_drawn_from_no_part_of_its_key():
    selectors = {"client_selection": SplittingSelector(), "data_selection": SplittingData()}
    simulate(Experiment(TASK, **selectors, local_training=SGD(0.1), cohort_size=3, rounds=1), clients(), seeds=[0])
    jax.effects_barrier()
    assert {what for what, *_ in HEARD} == {"upfront", "signals", "observe", "merge"}
    assert not {what for what, drawn, parts in HEARD if (drawn == parts).any()}
