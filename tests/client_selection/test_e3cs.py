"""E3CS: chances, weights, and how many come back of volatile clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.e3cs import E3CS
from fedjax_sel.leaderboard.volatile import CHANCES, count_successes
from tests.client_selection.rounds import HOST, KEY, cohort, context, inclusion, many, members


def allocate(weight, m, sigma):
    """ProbAlloc: chances and overflow set; `α` by trying every number of weights above it."""
    n = len(weight)
    chance = sigma + (m - n * sigma) * weight / weight.sum()
    if chance.max() <= 1:
        return chance, np.zeros(n, bool)
    falling = np.sort(weight)[::-1]
    for k in range(1, n):
        alpha = (1 - sigma) * falling[k:].sum() / ((m - n * sigma) - (1 - sigma) * k)
        if falling[k] < alpha <= falling[k - 1]:
            cut = np.minimum(weight, alpha)
            return sigma + (m - n * sigma) * cut / cut.sum(), weight >= alpha
    raise AssertionError("no alpha")


@pytest.mark.parametrize(
    ("fairness", "chances", "overflow"), [(0.0, [0.25, 0.25, 0.5, 1], [3]), (0.5, [0.3125, 0.3125, 0.375, 1], [])]
)
def test_chances_by_hand(fairness, chances, overflow):
    """Of weights (1, 1, 2, 12) and m = 2; with σ = ¼ the largest is 1 without being cut."""
    selector, ctx = E3CS(fairness=fairness), context(np.ones(4), 2)
    got, capped = selector.chances(jnp.log(jnp.array([1.0, 1, 2, 12])), ctx)
    np.testing.assert_allclose(got, chances, rtol=1e-5)
    assert np.flatnonzero(capped).tolist() == overflow


@pytest.mark.parametrize("fairness", [0.0, 0.5, 0.8, 1.0])
def test_chances_and_weights_follow_the_rule_over_rounds(fairness):
    rng, n, m, eta = np.random.default_rng(2), 9, 3, 0.5
    selector, ctx = E3CS(eta, fairness, draw="systematic"), context(np.ones(n), m)
    state, weight, sigma = selector.init(KEY, ctx, HOST), np.ones(n), fairness * m / n
    cut = 0
    for t in range(25):
        chance, overflow = allocate(weight, m, sigma)
        cut += overflow.sum()
        got = selector.chances(state, ctx)
        np.testing.assert_allclose(got.chance, chance, rtol=1e-3)
        np.testing.assert_allclose(np.sum(got.chance), m, rtol=1e-5)
        assert np.min(got.chance) >= sigma - 1e-6
        one = selector.select(jax.random.key(t), state, ctx)
        assert len(members(one)) == m
        one = cohort(one.client, rng.random(m) < np.where(np.asarray(one.client) < 3, 0.9, 0.3))
        state = selector.observe(KEY, state, ctx, one)
        success = np.zeros(n)
        success[members(one)] = 1 / chance[members(one)]
        weight = weight * np.where(overflow, 1, np.exp((m - n * sigma) * eta * success / n))
    assert (cut > 0) == (fairness == 0.0)


def test_the_overflow_set_keeps_its_weights():
    """By hand: 3 is cut, so that of 2 and 3, which both came back, only 2 gains, 2 · .5 / (.5 · 4)."""
    selector, ctx = E3CS(fairness=0.0), context(np.ones(4), 2)
    state = jnp.log(jnp.array([1.0, 1, 2, 12]))
    after = np.asarray(selector.observe(KEY, state, ctx, cohort([2, 3])))
    np.testing.assert_allclose(after - after[3], np.log([1 / 12, 1 / 12, np.exp(0.5) / 6, 1]), atol=1e-5)


@pytest.mark.parametrize("fairness", [0.0, 0.1, 0.7, 0.8, 0.95])
@pytest.mark.parametrize("n", [3, 14, 18])
def test_where_all_available_clients_are_drawn_all_of_unequal_weights_overflow(fairness, n):
    selector, ctx = E3CS(fairness=fairness), context(np.ones(20), n, available=np.arange(20) < n)
    state = 0.1 * jnp.arange(20.0)
    got = selector.chances(state, ctx)
    np.testing.assert_allclose(got.chance, np.arange(20) < n, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(got.capped)[:n], True)
    np.testing.assert_array_equal(selector.observe(KEY, state, ctx, cohort(range(n))), state)


def test_systematic_draws_have_the_chances_and_successive_ones_are_near_them():
    state, ctx = jnp.log(jnp.array([1.0, 1, 2, 4, 8, 30])), context(np.ones(6), 2)
    for draw, far in (("systematic", 4.5 * 0.5 / np.sqrt(8000)), ("successive", 0.25)):
        selector = E3CS(fairness=0.3, draw=draw)
        got = inclusion(many(selector, state, ctx, 8000), 6)
        np.testing.assert_allclose(got, selector.chances(state, ctx).chance, atol=far)
    assert abs(got - np.asarray(selector.chances(state, ctx).chance)).max() > 0.02, "the two draws differ"


@pytest.mark.parametrize("draw", ["successive", "systematic"])
def test_who_cannot_be_reached_has_no_chance(draw):
    selector, ctx = E3CS(draw=draw), context(np.ones(5), 3, available=[True, False, True, False, False])
    state = jnp.array([0.0, 5.0, -1.0, 0.0, 0.0])
    np.testing.assert_allclose(selector.chances(state, ctx).chance, [1, 0, 1, 0, 0], atol=1e-6)
    assert sorted(members(selector.select(KEY, state, ctx))) == [0, 2]


@pytest.mark.parametrize("draw", ["successive", "systematic"])
def test_no_key_is_used_twice(draw):
    selector, ctx = E3CS(draw=draw), context(np.ones(5), 3)
    with jax.debug_key_reuse(True):
        jax.jit(selector.select)(jax.random.key(3), jnp.zeros(5), ctx)


def test_inc_is_greedy_in_the_first_quarter_and_uniform_from_then_on():
    state, selector = jnp.log(jnp.array([1.0, 1, 2, 12])), E3CS(schedule="inc")
    for round, expected in ((0, [0.25, 0.25, 0.5, 1]), (24, [0.25, 0.25, 0.5, 1]), (25, [0.5] * 4), (99, [0.5] * 4)):
        got = selector.chances(state, context(np.ones(4), 2, round=round, rounds=100)).chance
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@jax.jit
def successes(selector, keys):
    """How many of 20 members come back in 2500 rounds, in all, and how often each client is selected, by key."""
    chance = jnp.repeat(jnp.asarray(CHANCES), 25)
    state, everyone = jnp.zeros(100), jnp.ones(100, bool)
    return jax.vmap(lambda key: count_successes(selector, state, key, chance, everyone))(keys)


def test_it_finds_who_comes_back_and_fairness_trades_that_for_turns():
    """Shares of members that come back, and Jain's index of turns, computed apart in NumPy with logarithms of weights.

    Weights themselves leave the range of float64 where `fairness` is 0.
    """
    expected = {0.0: (0.861, 0.227), 0.5: (0.680, 0.505), 0.8: (0.554, 0.839), "inc": (0.562, 0.858)}
    for fairness, (rate, jain) in expected.items():
        one = {"schedule": "inc"} if fairness == "inc" else {"fairness": fairness}
        got, turns = map(np.asarray, successes(E3CS(draw="systematic", **one), jax.random.split(KEY, 6)))
        np.testing.assert_allclose(got.mean() / 50_000, rate, atol=0.03, err_msg=str(fairness))
        spread = turns.sum(1) ** 2 / (100 * (turns.astype(float) ** 2).sum(1))
        np.testing.assert_allclose(spread.mean(), jain, atol=0.03, err_msg=str(fairness))


@pytest.mark.parametrize(("eta", "fairness"), [(0.0, 0.5), (0.5, 1.1)])
def test_numbers_out_of_range_are_refused(eta, fairness):
    with pytest.raises(ValueError, match=r"e3cs: (eta is 0.0; it must be above 0|fairness is 1.1; .* in \[0, 1\])"):
        E3CS(eta, fairness)
