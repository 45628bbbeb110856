"""FedGS: the graph of clients, the problem of each round, and its solution by exchanges."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.csgraph import floyd_warshall

from fedjax_sel.client_selection.fed_gs import FedGS, FedGSState, exchange, graph_distances
from tests.client_selection.rounds import HOST, KEY, cohort, context, members


def distances_by_hand(counts, epsilon, sigma, *, with_zero):
    n = len(counts)
    similar = np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a in counts] for b in counts])
    pairs = similar[~np.eye(n, dtype=bool)]
    low, high = (min(pairs.min(), 0) if with_zero else pairs.min()), pairs.max()
    edges = np.full((n, n), np.inf)
    for i in range(n):
        for j in range(n):
            u = (similar[i, j] - low) / (high - low)
            if i != j and u > epsilon:
                edges[i, j] = np.exp(-(u**2) / sigma)
    path = floyd_warshall(edges)
    path = path / path[np.isfinite(path)].max()
    return np.where(np.isfinite(path), path, 1.0)


@pytest.mark.parametrize("scale", ["pairs", "code"])
def test_distances_are_shortest_paths_between_clients_with_like_labels(scale):
    rng = np.random.default_rng(0)
    for _ in range(5):
        counts = rng.integers(0, 20, (9, 4)) * (rng.random((9, 4)) < 0.6) + np.eye(9, 4, dtype=int)
        counts[:, 0] += counts.sum(1) == 0
        selector, ctx = FedGS(epsilon=0.4, sigma=0.5, scale=scale), context(counts.sum(1), 3)
        got = selector.init(KEY, ctx, HOST, label_counts=jnp.asarray(counts)).distance
        expected = distances_by_hand(counts.astype(float), 0.4, 0.5, with_zero=scale == "code")
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


def test_clients_without_a_label_in_common_are_as_far_apart_as_can_be():
    """Two pairs of alike clients: an edge in each pair, and no path between them."""
    got = graph_distances(jnp.array([[3, 0], [0, 4], [1, 0], [0, 2]]), 0.01, 0.1)
    np.testing.assert_allclose(got, [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]], atol=1e-6)


def test_many_examples_do_not_overflow():
    small = jnp.array([[3, 0], [0, 3], [3, 3]])
    np.testing.assert_allclose(graph_distances(20_000 * small, 0.01, 0.1), graph_distances(small, 0.01, 0.1), rtol=1e-5)


def test_equal_clients_are_equally_far_apart():
    assert np.isfinite(np.asarray(graph_distances(jnp.full((5, 3), 2), 0.01, 0.1))).all()


def objective(distance, count, chosen, n, reachable, m, alpha):
    z = (2 * (count - count.mean() - m / reachable) + 1) / (n - 1)
    far = sum(distance[i, j] for i in chosen for j in chosen)
    return alpha / (m * (m - 1)) * far - z[list(chosen)].sum()


def test_cohorts_solve_the_problem_of_the_round():
    """No exchange helps, and on 40 problems of 9 clients the best of all cohorts is found nearly always."""
    rng, n, m, alpha = np.random.default_rng(1), 9, 4, 1.0
    select, found = jax.jit(FedGS(alpha).select), 0
    for t in range(40):
        distance = rng.random((n, n))
        distance = (distance + distance.T) / 2 * (1 - np.eye(n))
        count, available = rng.integers(0, 4, n), rng.random(n) < 0.85
        available[:m] = True
        state = FedGSState(jnp.asarray(distance, jnp.float32), jnp.asarray(count, jnp.int32))
        ctx = context(np.ones(n), m, available=available)
        chosen = members(select(jax.random.key(t), state, ctx))
        here = np.flatnonzero(available)
        assert set(chosen) <= set(here)
        assert len(set(chosen)) == m

        def value(group, distance=distance, count=count, here=here):
            return objective(distance, count, group, n, len(here), m, alpha)

        for i in chosen:
            for j in set(here) - set(chosen):
                assert value([*(set(chosen) - {i}), j]) <= value(chosen) + 1e-4
        best = max(value(group) for group in combinations(here.tolist(), m))
        found += value(chosen) > best - 1e-4
        assert value(chosen) > best - 0.1
    assert found >= 36


def test_with_alpha_0_the_clients_of_fewest_turns_are_selected_by_hand():
    """The `z` are (.85, -.15, .35, -.65, -.15) of turns (3, 1, 2, 0, 1): client 3, and 1 or 4 by chance."""
    turns = np.array([3, 1, 2, 0, 1])
    z = (2 * (turns - turns.mean() - 2 / 5) + 1) / 4
    np.testing.assert_allclose(z, [0.85, -0.15, 0.35, -0.65, -0.15])
    state = FedGSState(jnp.zeros((5, 5)), jnp.asarray(turns, jnp.int32))
    ctx = context(np.ones(5), 2)
    select = jax.jit(FedGS(0.0).select)
    got = {frozenset(members(select(jax.random.key(k), state, ctx))) for k in range(30)}
    assert got == {frozenset({3, 1}), frozenset({3, 4})}


def test_with_alpha_0_turns_stay_within_one_of_each_other():
    selector, ctx = FedGS(0.0), context(np.ones(7), 3)
    state = FedGSState(jnp.zeros((7, 7)), jnp.zeros(7, jnp.int32))
    turn = jax.jit(lambda key, state: selector.observe(KEY, state, ctx, selector.select(key, state, ctx)))
    for t in range(15):
        state = turn(jax.random.key(t), state)
        assert int(state.count.max() - state.count.min()) <= 1


def test_all_are_selected_where_few_can_be_reached_and_empty_slots_are_no_turns():
    selector, ctx = FedGS(), context(np.ones(5), 3, available=[False, True, False, False, True])
    state = FedGSState(jnp.ones((5, 5)), jnp.zeros(5, jnp.int32))
    one = selector.select(KEY, state, ctx)
    assert sorted(members(one)) == [1, 4]
    assert selector.observe(KEY, state, ctx, one).count.tolist() == [0, 1, 0, 0, 1]
    assert members(FedGS().select(KEY, state, context(np.ones(5), 1)))  # one slot has no pairs
    nobody = exchange(jnp.zeros((5, 5)), jnp.zeros(5), jnp.zeros(5, bool), 3)
    assert not nobody.any()
    assert selector.observe(KEY, state, ctx, cohort([-1, -1, -1])).count.sum() == 0


@pytest.mark.parametrize("field", ["alpha", "epsilon", "sigma"])
def test_numbers_out_of_range_are_refused(field):
    with pytest.raises(ValueError, match=rf"{field} is -0.1; it must be"):
        FedGS(**{field: -0.1})
