"""Facility location in groups, exchanges of medoids and cluster sizes, against loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.kernels.facility_location import (
    count_clusters,
    locate_facilities,
    locate_in_groups,
    pairwise_distances,
    swap_medoids,
)

KEY = jax.random.key(0)


def points(seed, n=24, groups=3):
    """Points, their group, and which of them are there."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, groups, n), rng.random(n) < 0.8


def distances(x):
    return np.asarray(pairwise_distances(jnp.asarray(x)))


def greedy(distance, k):
    """The greedy facilities among points that are all served, in the order of their choice."""
    chosen, nearest = [], np.full(len(distance), np.inf)
    for _ in range(min(k, len(distance))):
        costs = [np.inf if j in chosen else np.minimum(nearest, distance[:, j]).sum() for j in range(len(distance))]
        chosen.append(int(np.argmin(costs)))
        nearest = np.minimum(nearest, distance[:, chosen[-1]])
    return chosen


def swap(distance, chosen):
    """Medoids after the best exchange, again and again."""
    chosen = set(chosen)
    while True:
        cost = distance[:, sorted(chosen)].min(1).sum()
        tried = {
            (out, new): distance[:, sorted(chosen - {out} | {new})].min(1).sum()
            for out in chosen
            for new in set(range(len(distance))) - chosen
        }
        if not tried or min(tried.values()) >= cost - 1e-6 * cost:
            return chosen
        out, new = min(tried, key=tried.__getitem__)
        chosen = chosen - {out} | {new}


@pytest.mark.parametrize("seed", range(3))
def test_every_group_has_the_facilities_medoids_and_clusters_that_it_would_have_alone(seed):
    x, group, there = points(seed)
    budget = [4, 0, 2]
    d = distances(x)
    args = jnp.asarray(group), jnp.asarray(there)
    step = locate_in_groups(KEY, jnp.asarray(d), *args, args[1], jnp.array(budget))
    medoid = swap_medoids(jnp.asarray(d), step >= 0, *args, 3)
    size = np.asarray(count_clusters(jnp.asarray(d), medoid, *args))
    for g, k in enumerate(budget):
        own = np.flatnonzero((group == g) & there)
        inside = d[np.ix_(own, own)]
        chosen = greedy(inside, k)
        assert np.asarray(step)[own[chosen]].tolist() == list(range(k))
        best = sorted(swap(inside, chosen)) if k else []
        assert np.flatnonzero(np.asarray(medoid)[own]).tolist() == best
        if k:
            nearest = np.bincount(np.array(best)[inside[:, best].argmin(1)], minlength=len(own))
            np.testing.assert_array_equal(size[own], nearest)
    assert (np.asarray(step)[(group == 1) | ~there] == -1).all()
    assert size.sum() == (there & (group != 1)).sum()


def test_the_optimum_of_five_points_on_a_line_is_found_by_one_exchange():
    x = jnp.array([0.0, 1, 2, 10, 11])
    d, one, everyone = jnp.abs(x[:, None] - x[None]), jnp.zeros(5, int), jnp.ones(5, bool)
    step = locate_in_groups(KEY, d, one, everyone, everyone, jnp.array([2]))
    assert step[2] == 0  # greedily: 2, of cost 20, then 10 or 11
    medoid = swap_medoids(d, step >= 0, one, everyone, 1)
    assert medoid.nonzero()[0][0] == 1
    assert d[:, medoid].min(1).sum() == 3
    assert count_clusters(d, medoid, one, everyone)[medoid].tolist() == [3, 2]


def test_equal_points_are_each_their_own_cluster_and_equal_choices_are_settled_at_random():
    d, one, everyone = jnp.zeros((6, 6)), jnp.zeros(6, int), jnp.ones(6, bool)
    assert count_clusters(d, everyone, one, everyone).tolist() == [1] * 6
    locate = jax.jit(jax.vmap(lambda key: locate_facilities(key, d, everyone, 1)[0][0]))
    assert set(locate(jax.random.split(KEY, 60)).tolist()) == set(range(6))


def test_rounding_settles_no_tie_between_facilities():
    """Either of two points that are nearest to each other represents both for the same cost."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(12, 3)), 2, axis=0) * 10
    x[::2] += rng.normal(size=(12, 3))
    d, group, everyone = distances(x.astype(np.float32)), jnp.asarray(np.arange(24) // 8), jnp.ones(24, bool)

    def choose(key, d):
        step = locate_in_groups(key, d, group, everyone, everyone, jnp.array([4, 4, 4]))
        arbitrary = jnp.arange(24) % 8 < 3  # two of the first pair: exchanges improve it
        return step, swap_medoids(d, arbitrary, group, everyone, 3)

    choose, drawn = jax.jit(choose), set()
    for seed in range(20):
        step, medoid = choose(jax.random.key(seed), d)
        assert [(np.asarray(step)[pair : pair + 2] >= 0).sum() for pair in range(0, 24, 2)] == [1] * 12
        drawn.add(tuple(np.asarray(step) >= 0))
        off = d * (1 + 2e-7 * rng.normal(size=d.shape)).astype(np.float32)
        again = choose(jax.random.key(seed), off)
        np.testing.assert_array_equal(again[0], step)
        np.testing.assert_array_equal(again[1], medoid)
    assert len(drawn) > 10
