import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.e3cs import E3CS
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.leaderboard.volatile import CHANCES, count_successes

CHANCE = jnp.repeat(jnp.asarray(CHANCES), 25)
EVERYONE = jnp.ones(100, bool)


def count(selector, state=(), available=EVERYONE, rounds=300, seeds=4):
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    return jax.jit(jax.vmap(lambda key: count_successes(selector, state, key, CHANCE, available, rounds=rounds)))(keys)


@pytest.mark.parametrize(("available", "expected"), [(EVERYONE, 0.475), (CHANCE.max() == CHANCE, 0.9)])
def test_uniform_selection_and_an_oracle_have_their_exact_expectations(available, expected):
    successes, turns = count(Uniform(), available=available)
    assert (np.asarray(turns).sum(axis=1) == 300 * 20).all()
    assert np.mean(np.asarray(successes)) / 6000 == pytest.approx(expected, abs=0.015)


def test_e3cs_finds_the_clients_that_return():
    successes, turns = count(E3CS(fairness=0.5, draw="systematic"), jnp.zeros(100))
    assert np.mean(np.asarray(successes)) / 6000 > 0.53
    by_class = np.asarray(turns).sum(0).reshape(4, 25).sum(1)
    assert (np.diff(by_class) > 0).all()
