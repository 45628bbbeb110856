"""HACCS and FedLECC: clusters by labels, and who is selected of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from fedjax_sel.client_selection._labels import cluster_labels
from fedjax_sel.client_selection._strata import draw_stratified, places_in_strata, top_stratified
from fedjax_sel.client_selection.fed_lecc import FedLECC
from fedjax_sel.client_selection.haccs import HACCS, HACCSState
from fedjax_sel.data.partition import Dirichlet
from tests.client_selection.rounds import HOST, KEY, cohort, context, inclusion, many, members

COUNTS = np.array([[9, 1, 0], [18, 2, 0], [0, 10, 0], [0, 0, 7], [8, 1, 0], [0, 1, 20], [1, 8, 0], [5, 5, 5]])
"""Clients 0, 1, 4 hold the first label, 2, 6 the second, 3, 5 the third; client 7 holds all."""


def partition_of(cluster):
    return {frozenset(np.flatnonzero(np.asarray(cluster) == k).tolist()) for k in set(np.asarray(cluster).tolist())}


@pytest.mark.parametrize("distance", ["hellinger", "euclidean"])
def test_clients_with_like_labels_share_a_cluster_and_one_like_nobody_has_its_own(distance):
    cluster = cluster_labels(COUNTS, 0.3, distance)
    assert partition_of(cluster) == {frozenset({0, 1, 4}), frozenset({2, 6}), frozenset({3, 5}), frozenset({7})}
    assert set(cluster.tolist()) == {0, 1, 2, 3}


def test_selectors_cluster_by_the_distances_that_they_are_given():
    """The two distances of HACCS form different clusters of these counts."""
    counts, found = np.random.default_rng(0).integers(0, 20, (8, 3)) + np.eye(8, 3, dtype=int), []
    for distance, named in (("euclidean", "code"), ("hellinger", "hellinger")):
        ctx = context(counts.sum(1), 2, seconds=np.arange(1, 9))
        got = HACCS(distance=named).init(KEY, ctx, HOST, label_counts=jnp.asarray(counts)).cluster
        np.testing.assert_array_equal(got, cluster_labels(counts, 0.25, distance))
        found.append(partition_of(got))
    assert found[0] != found[1]
    for eps, clusters in ((0.3, 4), (1e-6, 7)):  # 0 and 1 have the same shares
        got = FedLECC(eps=eps).init(KEY, context(COUNTS.sum(1), 2), HOST, label_counts=jnp.asarray(COUNTS))
        assert len(partition_of(got)) == clusters


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
def test_at_their_defaults_haccs_and_fed_lecc_form_clusters_of_a_hundred_clients(alpha):
    """Most clients share a cluster with others, at least for the classes of `fashion_mnist` and like data."""
    y = np.repeat(np.arange(10), 1000)
    owner = Dirichlet(100, alpha).assign(y, np.random.default_rng(0))
    counts = jnp.asarray([np.bincount(y[owner == i], minlength=10) for i in range(100)])
    ctx = context(counts.sum(1), 10, seconds=np.arange(1, 101))
    for found in (
        HACCS().init(KEY, ctx, HOST, label_counts=counts).cluster,
        FedLECC().init(KEY, ctx, HOST, label_counts=counts),
    ):
        sizes = np.bincount(found)
        assert sizes[sizes > 1].sum() >= 45


def test_equal_clients_are_one_cluster_and_different_ones_are_alone():
    assert len(partition_of(cluster_labels(np.full((6, 2), 3), 0.25, "hellinger"))) == 1
    assert len(partition_of(cluster_labels(np.eye(5, dtype=int) * 4, 0.25, "hellinger"))) == 5
    assert cluster_labels(np.array([[3, 4]]), 0.25, "hellinger").tolist() == [0]


def test_the_best_of_each_stratum_are_taken():
    rng = np.random.default_rng(0)
    for t in range(20):
        stratum, score, available = rng.integers(0, 4, 15), rng.permutation(15) / 15, rng.random(15) < 0.8
        quota = rng.integers(0, 4, 4)
        arrays = (jnp.asarray(stratum), jnp.asarray(quota), jnp.asarray(score, jnp.float32), jnp.asarray(available))
        got = members(top_stratified(jax.random.key(t), *arrays, 12))
        expected = []
        for k in range(4):
            own = [i for i in range(15) if stratum[i] == k and available[i]]
            expected += sorted(own, key=lambda i: -score[i])[: quota[k]]
        assert sorted(got) == sorted(expected)


def test_places_count_from_0_in_each_stratum():
    place = places_in_strata(jnp.zeros(6), jnp.array([3.0, 1, 2, 5, 4, 0]), jnp.array([1, 0, 1, 0, 1, 0]))
    assert place.tolist() == [1, 1, 0, 2, 2, 0]


def test_stratified_draws_are_uniform_in_each_stratum():
    stratum, quota = jnp.array([0, 0, 0, 1, 1, 1, 1]), jnp.array([1, 2])
    draw = jax.jit(jax.vmap(lambda key: draw_stratified(key, stratum, quota, jnp.ones(7, bool), 3)))
    np.testing.assert_allclose(inclusion(draw(jax.random.split(KEY, 6000)), 7), [1 / 3] * 3 + [1 / 2] * 4, atol=0.03)


def test_haccs_weighs_clusters_by_speed_and_loss_by_hand():
    """Mean squared losses .25 and 1, seconds .5 and 1: θ = (.35, .4), normalised (.466667, .533333)."""
    ctx = context(np.ones(4), 2, seconds=[0.4, 0.6, 1.0, 1.0])
    state = HACCSState(jnp.array([0, 0, 1, 1]), jnp.array([0.5, 0.5, 1.0, 1.0]))
    theta = HACCS().weights(state, ctx)
    np.testing.assert_allclose(theta, [0.35, 0.4, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(theta / theta.sum(), [0.466667, 0.533333, 0, 0], rtol=1e-5)
    away = ctx.replace(available=jnp.array([True, False, False, False]))  # it alone: slowest, and all of the loss
    np.testing.assert_allclose(HACCS().weights(state, away), [0.5, 0, 0, 0], rtol=1e-5)


def test_haccs_gives_whole_shares_surely_and_draws_the_rest_by_weight():
    """θ = (.7, .3) of 5 slots: 3 and 1, and the fifth by (.7, .3); each cluster gives its fastest."""
    seconds = np.array([1.0, 2, 3, 4, 5, 9, 8, 7, 6, 10])
    selector, ctx = HACCS(rho=0.0), context(np.ones(10), 5, seconds=seconds)
    state = HACCSState(jnp.asarray([0] * 5 + [1] * 5), jnp.asarray([0.7**0.5] * 5 + [0.3**0.5] * 5, jnp.float32))
    drawn = many(selector, state, ctx, 4000)
    got = {frozenset(members(jax.tree.map(lambda leaf, k=k: leaf[k], drawn))) for k in range(300)}
    assert got == {frozenset({0, 1, 2, 3, 8}), frozenset({0, 1, 2, 8, 7})}
    fourth = int((np.asarray(drawn.client) == 3).sum())
    assert chisquare([fourth, 4000 - fourth], [2800, 1200]).pvalue > 1e-4


def test_haccs_follows_the_rule_of_its_code_where_nothing_is_left_to_chance():
    """Weights whose shares are whole, clusters smaller than their shares filled up by the others."""
    rng, selector = np.random.default_rng(3), HACCS()
    for t in range(15):
        n, m = 14, 6
        cluster, loss, seconds = rng.integers(0, 4, n), rng.uniform(0.3, 2, n), rng.uniform(1, 9, n)
        available = rng.random(n) < 0.8
        ctx = context(np.ones(n), m, available=available, seconds=seconds)
        state = HACCSState(jnp.asarray(cluster, jnp.int32), jnp.asarray(loss, jnp.float32))
        theta = {}
        own = {k: [i for i in range(n) if cluster[i] == k and available[i]] for k in range(4)}
        own = {k: group for k, group in own.items() if group}
        slow = {k: np.mean(seconds[group]) for k, group in own.items()}
        bad = {k: np.mean(loss[group] ** 2) for k, group in own.items()}
        theta = {k: 0.5 * (1 - slow[k] / max(slow.values())) + 0.5 * bad[k] / sum(bad.values()) for k in own}
        for k, value in theta.items():
            np.testing.assert_allclose(selector.weights(state, ctx)[k], value, rtol=1e-4)
        got = members(selector.select(jax.random.key(t), state, ctx))
        assert len(set(got)) == min(m, available.sum())
        for k, group in own.items():
            fastest = sorted(group, key=lambda i: seconds[i])
            taken = [i for i in got if cluster[i] == k]
            assert sorted(taken) == sorted(fastest[: len(taken)])
            assert len(taken) >= min(int(theta[k] / sum(theta.values()) * m), len(group))


def test_haccs_remembers_losses_of_who_came_back_and_begins_with_that_of_a_guess():
    ctx = context(COUNTS.sum(1), 2, seconds=np.arange(1, 9))
    state = HACCS(eps=0.3).init(KEY, ctx, HOST, label_counts=jnp.asarray(COUNTS))
    np.testing.assert_allclose(state.loss, np.log(3), rtol=1e-6)
    after = HACCS().observe(KEY, state, ctx, cohort([5, 2], [True, False]), training_loss=jnp.array([0.25, 9.0]))
    known = np.array([np.log(3)] * 5 + [0.25] + [np.log(3)] * 2)
    known[2] = known.mean()  # who did not come back counts as all do on the mean
    np.testing.assert_allclose(after.loss, known, rtol=1e-6)
    assert partition_of(after.cluster) == partition_of(cluster_labels(COUNTS, 0.3, "euclidean"))


def test_haccs_refuses_clients_without_devices():
    with pytest.raises(ValueError, match="haccs selects by what devices can do, but the clients have none"):
        HACCS().init(KEY, context(COUNTS.sum(1), 2), HOST, label_counts=jnp.asarray(COUNTS))


def lecc(cluster, loss, available, m, clusters):
    """Worst clusters first, `⌈m / J⌉` of each, then the next, then again."""
    each, chosen = -(-m // clusters), []
    own = {k: [i for i in np.flatnonzero(cluster == k) if available[i]] for k in set(cluster.tolist())}
    order = sorted((k for k in own if own[k]), key=lambda k: -np.mean(loss[own[k]]))
    queue = {k: sorted(own[k], key=lambda i: -loss[i]) for k in order}
    while len(chosen) < min(m, sum(available)):
        for k in order:
            chosen += queue[k][:each]
            del queue[k][:each]
    return chosen[:m]


def test_fed_lecc_takes_the_clients_of_highest_loss_of_the_clusters_of_highest_loss():
    rng, sizes = np.random.default_rng(0), set()
    for t in range(40):
        n, m, clusters = 15, int(rng.integers(1, 9)), int(rng.integers(1, 6))
        cluster, loss, available = rng.integers(0, 5, n), rng.uniform(0, 3, n), rng.random(n) < 0.8
        ctx = context(np.ones(n), m, available=available)
        told = {"loss": jnp.asarray(loss, jnp.float32)}
        got = members(FedLECC(clusters).select(jax.random.key(t), jnp.asarray(cluster, jnp.int32), ctx, **told))
        assert got == lecc(cluster, loss, available, m, clusters)
        sizes.add((m, clusters))
    assert len(sizes) > 15


def test_fed_lecc_by_hand():
    """Mean losses 1, 2 and 1.5: of two clusters, two each of {2, 3, 4} and {5, 6}; with five slots also client 4."""
    cluster, loss = jnp.array([0, 0, 1, 1, 1, 2, 2]), jnp.array([1.0, 1, 3, 2, 1, 2, 1])
    assert members(FedLECC(2).select(KEY, cluster, context(np.ones(7), 4), loss=loss)) == [2, 3, 5, 6]
    assert members(FedLECC(2).select(KEY, cluster, context(np.ones(7), 5), loss=loss)) == [2, 3, 4, 5, 6]
    assert FedLECC().signals().before["loss"].cost.needs_model


def test_a_loss_that_is_no_number_ranks_its_client_lowest_and_not_its_cluster():
    cluster, ctx, told = jnp.arange(8) // 4, context(np.ones(8), 3), jnp.array([9.0, 8, 7, np.nan, 1, 1, 1, 1])
    one = FedLECC(1).select(KEY, cluster, ctx, loss=told)
    assert (members(one), int(one.nan_scores)) == ([0, 1, 2], 1)
    everybody = FedLECC(1).select(KEY, cluster, context(np.ones(8), 4), loss=told)
    assert members(everybody) == [0, 1, 2, 3], "the last of its cluster"
    unknown = FedLECC(1).select(KEY, cluster, ctx, loss=told.at[:4].set(np.nan))
    assert set(members(unknown)) < {4, 5, 6, 7}, "a cluster of which nothing is known comes last"


def test_clusters_of_equal_loss_are_chosen_at_random():
    cluster, ctx = jnp.arange(8) // 2, context(np.ones(8), 4)
    drawn = jax.vmap(lambda key: FedLECC(2).select(key, cluster, ctx, loss=jnp.ones(8)).client)(
        jax.random.split(KEY, 4000)
    )
    share = np.bincount(np.asarray(cluster)[np.asarray(drawn)].ravel(), minlength=4) / (2 * 4000)
    np.testing.assert_allclose(share, 0.5, atol=0.03)


def test_fed_lecc_refuses_no_clusters():
    with pytest.raises(ValueError, match="fed_lecc: clusters is 0; it must be a whole number, at least 1"):
        FedLECC(0)
    with pytest.raises(ValueError, match=r"haccs: rho is 1.5; it must be in \[0, 1\]"):
        HACCS(rho=1.5)
