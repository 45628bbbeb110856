"""Who took part, against what random selection must give and against loops."""

from fractions import Fraction
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.client_selection.round_robin import RoundRobin
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.metrics import coverage, heat, jain, members
from fedjax_sel.types import Context

N, M, RUNS, ROUNDS = 100, 10, 300, 170


@pytest.fixture(scope="module")
def at_random():
    """Cohorts of random selection."""
    ctx = Context(jnp.int32(0), jnp.int32(ROUNDS), jnp.ones(N, jnp.int32), jnp.ones(N, bool), cohort_size=M)
    keys = jax.random.split(jax.random.key(0), (RUNS, ROUNDS))
    return np.asarray(jax.vmap(jax.vmap(lambda key: Uniform().select(key, (), ctx).client))(keys))


def rounds_until_everybody_was_selected(clients, m):
    """Exactly: the longest of N waiting times, by inclusion and exclusion over who was left out."""
    total = Fraction(0)
    for j in range(1, clients + 1):
        left_out = Fraction(comb(clients - j, m), comb(clients, m))
        total += (-1) ** (j + 1) * comb(clients, j) / (1 - left_out)
    return float(total)


def test_the_expectation_is_right_where_it_can_be_done_by_hand():
    assert rounds_until_everybody_was_selected(2, 1) == 1 + 2
    assert rounds_until_everybody_was_selected(3, 2) == 1 + 3 / 2


def test_random_selection_covers_everybody_in_the_expected_number_of_rounds(at_random):
    expected = rounds_until_everybody_was_selected(N, M)
    done = coverage(at_random, N) == 1
    assert done.any(1).all()
    first = done.argmax(1) + 1
    assert first.mean() == pytest.approx(expected, abs=4 * first.std() / np.sqrt(RUNS))


def test_random_selection_covers_one_minus_a_power_after_each_round(at_random):
    expected = 1 - (1 - M / N) ** np.arange(1, ROUNDS + 1)
    np.testing.assert_allclose(coverage(at_random, N).mean(0), expected, atol=0.015)


def test_coverage_is_the_share_of_distinct_clients_so_far_and_empty_slots_are_nobody():
    rng = np.random.default_rng(0)
    selections = rng.integers(-1, 12, (3, 7, 4))
    for run, shares in zip(selections, coverage(selections, 12), strict=True):
        for t in range(7):
            assert shares[t] == pytest.approx(len(set(run[: t + 1].ravel().tolist()) - {-1}) / 12)
    assert coverage(np.full((1, 2, 3), -1), 5).tolist() == [[0, 0]]


def test_round_robin_covers_everybody_in_the_fewest_rounds_and_evenly():
    state, cohorts = jnp.full(9, -1, jnp.int32), []
    for t in range(6):
        ctx = Context(jnp.int32(t), jnp.int32(6), jnp.ones(9, jnp.int32), jnp.ones(9, bool), cohort_size=3)
        cohort = RoundRobin().select(jax.random.key(t), state, ctx)
        state = RoundRobin().observe(jax.random.key(t), state, ctx, cohort)
        cohorts.append(np.asarray(cohort.client))
    selections = np.array([cohorts])
    np.testing.assert_allclose(coverage(selections, 9), [[1 / 3, 2 / 3, 1, 1, 1, 1]])
    assert jain(np.bincount(selections.ravel(), minlength=9)[None])[0] == 1


def test_jains_index_is_one_over_one_plus_the_squared_coefficient_of_variation():
    counts = np.random.default_rng(5).integers(0, 40, (8, 30))
    np.testing.assert_allclose(jain(counts), 1 / (1 + stats.variation(counts, axis=1) ** 2))


def test_jains_index_goes_from_one_over_n_to_one():
    np.testing.assert_allclose(jain(np.array([[5, 5, 5, 5], [0, 0, 7, 0], [1, 2, 3, 4]])), [1, 1 / 4, 100 / 120])


def test_jains_index_of_nobody_is_nan():
    np.testing.assert_array_equal(jain(np.array([[0, 0], [1, 1]])), [np.nan, 1])


def test_jains_index_does_not_overflow_on_long_runs():
    assert jain(np.array([[2_000_000_000, 2_000_000_000]], np.int32))[0] == 1


def test_members_counts_the_slots_of_a_group():
    selections = np.array([[[0, 5, 9], [-1, 1, 0]], [[7, 8, 9], [2, 1, 0]]])
    np.testing.assert_array_equal(members(selections, np.array([0, 1, 2])), [[1, 2], [0, 3]])


def test_heat_is_the_share_of_seeds_that_selected_a_client_in_a_round():
    selections = np.random.default_rng(2).permuted(np.tile(np.arange(-1, 6), (5, 4, 1)), axis=-1)[:, :, :3]
    expected = np.zeros((6, 4))
    for client in range(6):
        for t in range(4):
            expected[client, t] = np.mean([client in selections[run, t].tolist() for run in range(5)])
    np.testing.assert_allclose(heat(selections, 6), expected)


def test_a_client_that_fills_two_slots_was_selected_once_by_that_seed():
    """Draws with replacement."""
    selections = np.array([[[3, 3, 1]], [[2, 3, -1]]])
    np.testing.assert_allclose(heat(selections, 4), [[0], [0.5], [0.5], [1]])


def test_lines_of_several_clients_have_the_mean_of_their_shares():
    rng = np.random.default_rng(0)
    selections = rng.integers(-1, 11, (3, 5, 4))
    each, joined = heat(selections, 11), heat(selections, 11, together=4)
    np.testing.assert_allclose(joined, [each[i : i + 4].mean(0) for i in (0, 4, 8)])
