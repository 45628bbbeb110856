"""Chances of inclusion of a given sum, and draws that keep them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection._inclusion import draw_systematic, fill_chances
from tests.client_selection.rounds import KEY


def fill_by_bisection(weight, total):
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * weight).sum() < total else (low, middle)
    return np.minimum(1, low * weight)


def test_chances_by_hand():
    """Of (1, 2, 3, 10) and 2: the largest is 1, the others share what is left, 1/6 each unit."""
    chance, capped = fill_chances(jnp.log(jnp.array([1.0, 2, 3, 10])), jnp.float32(2))
    np.testing.assert_allclose(chance, [1 / 6, 1 / 3, 1 / 2, 1], rtol=1e-6)
    assert capped.tolist() == [False, False, False, True]
    np.testing.assert_allclose(fill_chances(jnp.zeros(8), jnp.float32(2)).chance, 0.25, rtol=1e-6)


def test_chances_sum_to_the_total_and_are_the_only_ones_that_do():
    rng = np.random.default_rng(0)
    fill = jax.jit(fill_chances)
    for t in range(60):
        weight = rng.lognormal(0, 2, 9) * (rng.random(9) < 0.8)
        total = rng.uniform(0.1, max(1, (weight > 0).sum() - 0.1))
        chance, capped = fill(jnp.log(jnp.asarray(weight, jnp.float32)), jnp.float32(total))
        if (weight > 0).sum() <= total:
            assert (np.asarray(chance) == (weight > 0)).all()
            continue
        np.testing.assert_allclose(chance, fill_by_bisection(weight, total), rtol=1e-4, atol=1e-6, err_msg=str(t))
        np.testing.assert_allclose(np.sum(chance), total, rtol=1e-5)
        assert not capped.any() or np.asarray(chance)[np.asarray(capped)].min() > 1 - 1e-5


@pytest.mark.parametrize("weight", [[0.0, 0, 0], [3.0, 0, 0], [1e-30, 1e-30, 1.0]])
def test_few_weights_above_0_have_chance_1(weight):
    chance, _ = fill_chances(jnp.log(jnp.array(weight)), jnp.float32(2))
    assert np.isfinite(np.asarray(chance)).all()
    assert ((np.asarray(chance) == 0) == (np.array(weight) == 0)).all()


def test_weights_of_any_magnitude_keep_their_proportions():
    """Two that weigh nothing beside the first, one three times the other."""
    chance, capped = fill_chances(jnp.array([1e6, 0.0, -jnp.log(3.0)]), jnp.float32(1.5))
    np.testing.assert_allclose(chance, [1, 0.375, 0.125], rtol=1e-5)
    assert capped.tolist() == [True, False, False]


def test_systematic_draws_have_their_size_and_chances():
    chance = jnp.array([0.05, 0.9, 1.0, 0.25, 0.5, 0.3])
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: draw_systematic(key, chance)))(jax.random.split(KEY, 20000)))
    assert (drawn.sum(1) == 3).all()
    np.testing.assert_allclose(drawn.mean(0), chance, atol=4.5 * 0.5 / np.sqrt(20000))
