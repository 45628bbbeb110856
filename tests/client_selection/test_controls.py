"""Controls: shuffled round-robin, cyclic groups, age, and ε-greedy by loss."""

from math import ceil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.client_selection.age import Age
from fedjax_sel.client_selection.cyclic import Cyclic
from fedjax_sel.client_selection.epsilon_greedy import EpsilonGreedy
from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.client_selection.shuffled_round_robin import ShuffledRoundRobin
from tests.client_selection.rounds import HOST, KEY, cohort, context, inclusion, many, members


def flat(cohorts):
    """All members, cohort by cohort."""
    return [client for one in cohorts for client in one]


def play(selector, ctx, rounds, seed=0):
    """The cohorts of a run in which everybody returns."""
    state, out = selector.init(jax.random.key(seed), ctx, HOST), []

    @jax.jit
    def step(key, state, ctx):
        one = selector.select(key, state, ctx)
        return one, selector.observe(key, state, ctx, one)

    for t in range(rounds):
        one, state = step(jax.random.fold_in(jax.random.key(seed), t), state, ctx.replace(round=jnp.int32(t)))
        out.append(members(one))
    return out


@pytest.mark.parametrize(("n", "m"), [(12, 4), (10, 5), (7, 7)])
def test_shuffled_round_robin_visits_everybody_once_a_cycle_in_another_order_each_time(n, m):
    cohorts = play(ShuffledRoundRobin(), context(np.ones(n), m), 4 * n // m)
    cycles = [flat(cohorts[i : i + n // m]) for i in range(0, len(cohorts), n // m)]
    assert all(sorted(cycle) == list(range(n)) for cycle in cycles)
    companions = {frozenset(map(frozenset, cohorts[i : i + n // m])) for i in range(0, len(cohorts), n // m)}
    assert len(companions) == (1 if m == n else len(cycles))
    fixed = play(RoundRobin(), context(np.ones(n), m), 4 * n // m)
    assert {frozenset(map(frozenset, fixed[i : i + n // m])) for i in range(0, len(fixed), n // m)} == {
        frozenset(map(frozenset, fixed[: n // m]))
    }


def test_shuffled_round_robin_begins_the_next_cycle_with_slots_that_are_left():
    """Of 10 clients, 4 a round: rounds 0 to 2 hold everybody, and two of them twice, who have had that turn."""
    for seed in range(5):
        cohorts = play(ShuffledRoundRobin(), context(np.ones(10), 4), 5, seed)
        turns = np.bincount(flat(cohorts), minlength=10)
        assert turns.tolist() == [2] * 10
        assert all(len(set(one)) == 4 for one in cohorts)


def test_shuffled_round_robin_waits_for_who_is_away_but_lets_nobody_catch_up():
    selector, ctx = ShuffledRoundRobin(), context(np.ones(6), 2)
    away = ctx.replace(available=jnp.arange(6) != 5)
    state = selector.init(KEY, ctx, HOST)
    for t in range(10):
        one = selector.select(jax.random.key(t), state, away)
        state = selector.observe(KEY, state, away, one)
    turns = np.zeros(6, int)
    for t in range(9):
        one = selector.select(jax.random.key(50 + t), state, ctx)
        state = selector.observe(KEY, state, ctx, one)
        turns[members(one)] += 1
        if t == 2:  # it was waited for
            assert turns[5] >= 1
    assert 3 <= turns[5] <= 4, "nine rounds are three cycles"
    assert turns.max() - turns.min() <= 2


@pytest.mark.parametrize("order", ["fixed", "shuffled"])
@pytest.mark.parametrize("kind", ["index", "random"])
def test_cyclic_selects_from_one_group_a_round_and_from_each_once_a_cycle(kind, order):
    selector, ctx = Cyclic(groups=4, members=kind, order=order), context(np.ones(14), 3)
    state = selector.init(KEY, ctx, HOST)
    group = np.asarray(state.group)
    assert sorted(np.bincount(group).tolist()) == [3, 3, 4, 4]
    if kind == "index":
        assert (np.diff(group) >= 0).all()
    drawn = [selector.init(jax.random.key(k), ctx, HOST) for k in range(8)]
    assert (len({tuple(one.group.tolist()) for one in drawn}) > 1) == (kind == "random")
    begun = {tuple(one.order.tolist()) for one in drawn}
    assert (len(begun) > 1) == (order == "shuffled")
    assert all(sorted(one) == [0, 1, 2, 3] for one in begun)
    visited = [set(group[one]) for one in play(selector, ctx, 40)]
    assert all(len(one) == 1 for one in visited)
    cycles = [tuple(min(one) for one in visited[i : i + 4]) for i in range(0, 40, 4)]
    assert all(sorted(cycle) == [0, 1, 2, 3] for cycle in cycles)
    assert (len(set(cycles)) == 1) == (order == "fixed")


def test_groups_of_a_million_clients_are_alike_in_size():
    state = Cyclic(groups=10_000).init(KEY, context(np.ones(1_000_000), 100), HOST)
    assert (np.bincount(state.group, minlength=10_000) == 100).all()
    assert int(state.group.min()) == 0


def test_cyclic_draws_all_clients_of_the_group_alike():
    selector, ctx = Cyclic(groups=3), context(np.ones(15), 2, round=7)
    drawn = inclusion(many(selector, selector.init(KEY, ctx, HOST), ctx, 4000), 15)
    assert set(np.flatnonzero(drawn)) == set(range(5, 10))  # 7 mod 3
    assert stats.chisquare(4000 * drawn[5:10]).pvalue > 1e-4


def test_each_client_of_a_group_trains_once_in_as_many_cycles_as_its_group_has_cohorts():
    n, m, groups = 12, 2, 3
    cohorts = play(Cyclic(groups=groups), context(np.ones(n), m), 300)
    turns = np.bincount(flat(cohorts), minlength=n)
    assert turns.sum() == 600
    np.testing.assert_allclose(turns, 300 / (groups * ceil(n / groups / m)), atol=4 * np.sqrt(25))


def test_cyclic_refuses_groups_smaller_than_the_cohort():
    with pytest.raises(ValueError, match=r"cyclic: groups is 5; .* m = 3 .* N = 14 clients make 1 to 4 groups"):
        Cyclic(groups=5).init(KEY, context(np.ones(14), 3), HOST)


def test_age_grows_until_an_update_is_merged():
    """By hand: client 2 trained in round 0 and returned nothing, so it is as old as who never trained."""
    selector, ctx = Age(), context(np.ones(4), 2)
    state = selector.init(KEY, ctx, HOST)
    state = selector.observe(KEY, state, ctx, cohort([2, 0], mask=[False, True]))
    assert state.tolist() == [0, 1, 1, 1]
    state = selector.observe(KEY, state, ctx, cohort([3, -1]))
    assert state.tolist() == [1, 2, 2, 0]
    assert sorted(members(selector.select(KEY, state, ctx))) == [1, 2]
    few = ctx.replace(available=jnp.array([True, False, False, True]))
    assert members(selector.select(KEY, state, few)) == [0, 3]


def test_age_selects_everybody_once_in_a_cycle_where_all_return():
    cohorts = play(Age(), context(np.ones(9), 3), 12)
    assert all(sorted(flat(cohorts[i : i + 3])) == list(range(9)) for i in range(0, 12, 3))


@pytest.mark.parametrize(("epsilon", "per_slot"), [(0.0, False), (0.3, False), (0.3, True), (1.0, False)])
def test_epsilon_greedy_takes_the_largest_losses_and_explores_with_its_chance(epsilon, per_slot):
    """One coin a round: the best m are in with chance (1 - ε) + ε m / N. One a slot: k of them stay, k binomial."""
    n, m, draws = 10, 3, 20000
    loss = jnp.asarray(np.random.default_rng(0).permutation(n), jnp.float32)
    got = inclusion(many(EpsilonGreedy(epsilon, per_slot=per_slot), (), context(np.ones(n), m), draws, loss=loss), n)
    expected = np.zeros(n)
    ranked = np.argsort(-np.asarray(loss))
    for k in range(m + 1):  # slots that explore
        chance = stats.binom.pmf(k, m, epsilon) if per_slot else {0: 1 - epsilon, m: epsilon}.get(k, 0.0)
        expected[ranked[: m - k]] += chance
        expected[ranked[m - k :]] += chance * k / (n - (m - k))
    np.testing.assert_allclose(got, expected, atol=4.5 * 0.5 / np.sqrt(draws))


@pytest.mark.parametrize("epsilon", [-0.1, 1.5])
def test_epsilon_greedy_refuses_a_chance_outside_0_and_1(epsilon):
    with pytest.raises(ValueError, match=r"epsilon_greedy: epsilon is .*; it must be in \[0, 1\]"):
        EpsilonGreedy(epsilon)
