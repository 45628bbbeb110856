from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.leaderboard import volatile
from fedjax_sel.leaderboard.volatile import CHANCES, count_successes

CHANCE = jnp.repeat(jnp.asarray(CHANCES), 25)
EVERYONE = jnp.ones(100, bool)


@jax.jit
def count(available):
    """Four runs of random clients."""
    keys = jax.random.split(jax.random.key(0), 4)
    return jax.vmap(lambda key: count_successes(Uniform(), (), key, CHANCE, available, rounds=300))(keys)


@pytest.mark.parametrize(("available", "expected"), [(EVERYONE, 0.475), (CHANCE.max() == CHANCE, 0.9)])
def test_uniform_selection_and_an_oracle_have_their_exact_expectations(available, expected):
    successes, turns = count(available)
    assert (np.asarray(turns).sum(axis=1) == 300 * 20).all()
    assert np.mean(np.asarray(successes)) / 6000 == pytest.approx(expected, abs=0.015)


def test_the_study_has_all_methods_and_its_oracle_takes_the_best(monkeypatch):
    """Two runs of 40 rounds, 800 turns."""
    monkeypatch.setattr(volatile, "SEEDS", 2)
    monkeypatch.setattr(volatile, "count_successes", partial(count_successes, rounds=40))
    found = volatile.study_volatile()["methods"]
    assert list(found) == ["uniform", "oracle", *(f"e3cs, fairness {s}" for s in ("0", "0.5", "0.8")), "e3cs, inc"]
    share = {name: np.mean(one["successes"]) / 800 for name, one in found.items()}
    spread = {name: np.mean(one["jain"]) for name, one in found.items()}
    assert share["uniform"] == pytest.approx(0.475, abs=0.06)
    assert share["oracle"] == pytest.approx(0.9, abs=0.04)
    assert spread["oracle"] == pytest.approx(0.25, abs=0.01)  # a quarter of the clients, alike
    assert spread["oracle"] < spread["e3cs, fairness 0"] < spread["e3cs, fairness 0.5"] < spread["e3cs, fairness 0.8"]
    assert max(spread.values()) <= 1
