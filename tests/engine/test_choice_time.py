import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.fed_entropy import FedEntropy
from fedjax_sel.client_selection.fedcor import FedCor
from fedjax_sel.config import build, resolve
from fedjax_sel.engine import choice_time
from fedjax_sel.engine.choice_time import time_choice

TINY = {
    "data": {"name": "digits", "num_examples": 300},
    "partition": {"name": "iid", "clients": 6},
    "model": "logistic",
    "local_training": {"name": "sgd", "learning_rate": 0.1, "batch_size": 32},
    "cohort_size": 2,
    "rounds": 1,
    "seeds": 1,
}


def make_run(selector):
    return build(resolve({**TINY, "client_selection": selector}))


@pytest.mark.parametrize(
    ("cls", "method", "selector"),
    [
        (FedEntropy, "accept", "fed_entropy"),
        (FedCor, "observe", {"name": "fedcor", "warm_up": 1, "interval": 2, "first_steps": 2, "steps": 1}),
    ],
)
def test_the_time_of_a_choice_includes_all_that_the_server_does_for_it(monkeypatch, cls, method, selector):
    """Each also runs where the shapes of signals are found, which is before the choice is timed.

    By the clock, each repetition of three rounds takes six seconds.
    """
    clock = SimpleNamespace(perf_counter=itertools.count(0.0, 6.0).__next__)
    monkeypatch.setattr(choice_time, "time", clock)
    called, original, draw = [], getattr(cls, method), choice_time.draw_signals

    def draw_and_forget(*given):
        drawn = draw(*given)
        called.clear()
        return drawn

    monkeypatch.setattr(cls, method, lambda *given, **named: called.append(1) or original(*given, **named))
    monkeypatch.setattr(choice_time, "draw_signals", draw_and_forget)
    run = make_run(selector)
    spent = time_choice(run.experiment, run.data.draw(0), rounds=3, repeats=2)
    np.testing.assert_array_equal(spent, [2.0, 2.0])
    assert called


def test_stand_ins_have_the_shapes_of_a_rounds_signals_and_are_no_constants():
    run = make_run({"name": "power_of_choice", "d": 4})
    data = jax.tree.map(jnp.asarray, run.data.draw(0))
    seed = choice_time.make_key(0)
    state = choice_time.init_run(run.experiment, data, seed, choice_time.ONE_BY_ONE)
    before, signals = choice_time.draw_signals(run.experiment, data, seed, state)
    assert set(before) == set(signals) == {"loss"}
    assert len(np.unique(before["loss"])) == len(before["loss"])
