"""What strategies are told: nothing of clients out of reach; the number of rounds only if they declare it."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection import top_candidates, top_m
from fedjax_sel.client_selection.e3cs import E3CS
from fedjax_sel.devices.availability import Function

IRIS = fs.load("iris")
N = 10


def run(selector, rounds=3, seeds=1, data_selection=None, **given):
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), IRIS)
    made = {} if data_selection is None else {"data_selection": data_selection}
    experiment = fs.Experiment(task, client_selection=selector, cohort_size=3, rounds=rounds, **made)
    experiment = experiment.replace(availability=Function(odd_clients))
    return fs.simulate(experiment, fs.Federation(IRIS, fs.partition.Iid(clients=N)), seeds=seeds, **given)


def odd_clients(round, clients):
    return (jnp.arange(clients) + round) % 2 == 1


class Keeps(fs.ClientSelector):
    """Keeps the last losses that it was given."""

    def signals(self):
        return fs.Signals(before=[fs.signals.Loss()])

    def init(self, key, ctx, host):
        return jnp.zeros((3, ctx.num_clients))

    def select(self, key, state, ctx, *, loss):
        return top_m(key, loss, ctx.available, ctx.m)

    def observe(self, key, state, ctx, cohort, *, loss):
        return state.at[ctx.round].set(loss)


class Writes(Keeps):
    """Weighs each member by the losses of all clients, which are then seen in the loss of the run."""

    def select(self, key, state, ctx, *, loss):
        cohort = top_m(key, loss, ctx.available, ctx.m)
        return cohort.replace(weight=jnp.full(ctx.m, jnp.where(jnp.isnan(loss).sum() == N // 2, 1.0, jnp.nan)))


class Asks(Writes):
    """Asks six candidates, of which half can be reached."""

    def candidates(self, key, state, ctx):
        return jnp.arange(6)

    def init(self, key, ctx, host):
        return ()

    def select(self, key, state, ctx, *, loss):
        known = jnp.isnan(loss) == ~ctx.available[:6]
        cohort = top_candidates(key, ctx, jnp.arange(6.0))
        return cohort.replace(weight=jnp.where(known.all(), cohort.weight, jnp.nan))

    def observe(self, key, state, ctx, cohort, *, loss):
        return state


@pytest.mark.parametrize("selector", [Keeps(), Writes(), Asks()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("debug", [False, True], ids=["compiled", "debug"])
def test_nothing_is_told_of_clients_out_of_reach(selector, debug):
    """A fault (a weight that is NaN) would be a warning, which is an error here."""
    history = run(selector, seeds=2 - debug, debug=debug)
    assert not [name for name in history.metrics if name.startswith("fault_")]
    chosen = history.selections[0]
    assert ((chosen + np.arange(3)[:, None]) % 2 == 1).all()
    asked = 3 if isinstance(selector, Asks) else N // 2
    assert (history["selection_bytes_up"] == 4 * asked).all()


class Late(fs.ClientSelector):
    """Reads the number of rounds when it selects."""

    def select(self, key, state, ctx):
        return top_m(key, jnp.where(ctx.round < ctx.rounds / 2, 1.0, 2.0) * jnp.arange(N), ctx.available, ctx.m)


class Declared(Late):
    uses_rounds: ClassVar[bool] = True


class Equals(fs.ClientSelector):
    """Compares it."""

    def select(self, key, state, ctx):
        return top_m(key, jnp.where(ctx.rounds == 3, 1.0, 2.0) * jnp.arange(N), ctx.available, ctx.m)


class Begins(fs.ClientSelector):
    """Reads it before round 0."""

    def init(self, key, ctx, host):
        return jnp.zeros(ctx.num_clients) + ctx.rounds

    def select(self, key, state, ctx):
        return top_m(key, state, ctx.available, ctx.m)


class Last(fs.DataSelector):
    """Keeps no example before the last round but the first one."""

    uses_turn: ClassVar[bool] = True

    def select(self, key, state, valid, *, turn):
        return valid & ((turn.round == turn.rounds - 1) | (jnp.arange(len(valid)) == 0))


class Inherits(E3CS):
    """Inherits what reads it, and what declares it."""


def test_a_strategy_that_reads_the_number_of_rounds_must_declare_it():
    for own, where in ((Late(), "Late.select"), (Equals(), "Equals.select"), (Begins(), "Begins.init")):
        with pytest.raises(ValueError, match=f"^{where} reads the number of rounds; its class must say so"):
            run(own)
    with pytest.raises(ValueError, match=r"^Last.select reads the number of rounds; its class must say so"):
        run(fs.client_selection.Uniform(), data_selection=Last())
    with pytest.raises(ValueError, match=r"^Late.select reads the number of rounds"):
        run(fs.client_selection.CriticalFL(selector=Late()))
    run(fs.client_selection.CriticalFL(selector=Declared()))
    run(Declared())
    run(Inherits(schedule="inc"))
