"""Clustered sampling: the distributions against bins filled in fractions, Ward's tree against SciPy's, no bias."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

import fedjax_sel as fs
from fedjax_sel.client_selection._ward import (
    build_ward_tree,
    cut_to_count,
    cut_to_weight,
    measure_dissimilarity,
    number_clusters,
    pairwise_distances,
)
from fedjax_sel.client_selection.clustered_sampling import ClusteredSampling, fill_around_clusters, fill_distributions
from fedjax_sel.types import PAD_CLIENT, Cohort, Context

KEY = jax.random.key(0)


def context(size, m, available=None):
    size = np.asarray(size)
    available = np.ones(len(size), bool) if available is None else available
    return Context(jnp.int32(3), jnp.int32(9), jnp.asarray(size, jnp.int32), jnp.asarray(available), cohort_size=m)


def fill(rows, order, left, k=0):
    """The clients in this order fill the rows from `k` on; fractions, loops."""
    for i in order:
        while left[i] > 0:
            room = 1 - sum(rows[k])
            if room == 0:
                k += 1
                continue
            used = min(room, left[i])
            rows[k][i] += used
            left[i] -= used
    return np.array(rows, float)


def by_size(size, m):
    """Algorithm 1."""
    total = int(sum(size))
    left = [Fraction(m * int(n), total) for n in size]
    return fill([[Fraction(0)] * len(size) for _ in range(m)], np.argsort(-np.asarray(size), kind="stable"), left)


def around(size, cluster, m):
    """Algorithm 2 after the clustering: the heaviest clusters first, then the clients of the others."""
    total = int(sum(size))
    left = [Fraction(m * int(n), total) for n in size]
    weight = {c: sum(left[i] for i in range(len(size)) if cluster[i] == c) for c in sorted(set(cluster))}
    heavy = sorted(weight, key=lambda c: -weight[c])
    rows = [[Fraction(0)] * len(size) for _ in range(m)]
    for k, c in enumerate(heavy[:m]):
        for i in np.flatnonzero(np.asarray(cluster) == c):
            rows[k][i] = min(left[i], Fraction(1))
            left[i] -= rows[k][i]
    rest = [i for c in heavy[::-1] for i in sorted(np.flatnonzero(np.asarray(cluster) == c), key=lambda i: -size[i])]
    return fill(rows, rest, left)


def check_unbiased(chance, size, m):
    """Rows sum to 1, columns to `m p_i`: what makes the mean of the draws unbiased."""
    np.testing.assert_allclose(chance.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(chance.sum(0), m * np.asarray(size) / np.sum(size), rtol=1e-4, atol=1e-6)
    assert (np.asarray(chance) >= 0).all()


def test_four_clients_fill_three_distributions_as_by_hand():
    size = jnp.array([4, 3, 2, 1])
    got = fill_distributions(size, jnp.arange(4), 3)
    np.testing.assert_allclose(got, [[1, 0, 0, 0], [0.2, 0.8, 0, 0], [0, 0.1, 0.6, 0.3]], atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_distributions_by_size_are_the_filled_bins(seed):
    rng = np.random.default_rng(seed)
    size, m = rng.integers(1, 500, 23), int(rng.integers(1, 12))
    chance = ClusteredSampling(by="size").distributions((), context(size, m))
    np.testing.assert_allclose(chance, by_size(size, m), atol=1e-5)
    check_unbiased(chance, size, m)


@pytest.mark.parametrize("seed", range(6))
def test_distributions_around_clusters_are_the_filled_bins(seed):
    """One client holds more than a distribution in some of them."""
    rng = np.random.default_rng(seed)
    size, m = rng.integers(1, 50, 20), 5
    size[3] = 40 if seed % 2 else 600
    most, cluster, load = size.sum() // m, np.zeros(20, int), 0
    for i in range(1, 20):  # neighbours together, as long as they fit
        load = size[i - 1] if cluster[i - 1] != cluster[max(i - 2, 0)] else load + size[i - 1]
        cluster[i] = cluster[i - 1] + (size[cluster == cluster[i - 1]].sum() + size[i] > most if i else 0)
    for c in set(cluster):
        assert size[cluster == c].sum() <= most or (cluster == c).sum() == 1
    chance = fill_around_clusters(jnp.asarray(size), jnp.asarray(cluster), m)
    np.testing.assert_allclose(chance, around(size, cluster, m), atol=1e-5)
    check_unbiased(chance, size, m)


@pytest.mark.parametrize("around_clusters", [False, True])
def test_the_smallest_of_many_clients_has_its_mass_to_the_last_example(around_clusters):
    """Sums up to m n = 10^9 in float32 would lose 64 examples of them, and a quarter of the smallest clients' mass."""
    rng, n, m = np.random.default_rng(0), 40_000, 100
    size = np.maximum(1, rng.lognormal(4, 1.5, n)).astype(np.int32)
    assert m * int(size.sum()) > 5 * 10**8
    if around_clusters:
        chance = fill_around_clusters(jnp.asarray(size), jnp.arange(n), m)
    else:
        chance = fill_distributions(jnp.asarray(size), jnp.argsort(-size, stable=True), m)
    np.testing.assert_allclose(np.asarray(chance, np.float64).sum(0), m * size / size.sum(), rtol=1e-5)


def test_masses_beyond_32_bits_are_told_apart():
    for size, m in (([22_000_000, 5, 7, 9, 100_000], 100), ([3_000_000] * 5 + [1, 2, 3], 1000)):
        chance = np.asarray(fill_distributions(jnp.asarray(size), jnp.arange(len(size)), m), np.float64)
        np.testing.assert_allclose(chance.sum(0), m * np.array(size) / sum(size), rtol=1e-5)
        np.testing.assert_allclose(chance, by_size(size, m), atol=1e-5)


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_wards_tree_is_scipys(n):
    x = np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
    tree, theirs = jax.jit(build_ward_tree)(pairwise_distances(jnp.asarray(x))), linkage(x, "ward")
    np.testing.assert_allclose(np.sort(tree.height), theirs[:, 2], rtol=1e-4)
    for k in range(1, n + 1):
        assert same_partition(np.asarray(cut_to_count(tree, k)).tolist(), fcluster(theirs, k, "maxclust").tolist())


def test_wards_tree_of_angles_is_scipys_on_the_same_distances():
    x = jnp.asarray(np.random.default_rng(5).normal(size=(25, 3)), jnp.float32)
    distance = measure_dissimilarity(x, "cosine")
    tree, theirs = build_ward_tree(distance), linkage(squareform(np.asarray(distance, float), checks=False), "ward")
    np.testing.assert_allclose(np.sort(tree.height), theirs[:, 2], rtol=1e-4)


def test_one_client_is_one_cluster():
    tree = build_ward_tree(jnp.zeros((1, 1)))
    assert cut_to_count(tree, 1).tolist() == cut_to_weight(tree, jnp.ones(1), jnp.ones(())).tolist() == [0]


def test_equal_points_are_merged_in_one_cluster_and_no_height_falls():
    tree = build_ward_tree(jnp.zeros((9, 9)))
    assert set(cut_to_count(tree, 1).tolist()) == {8}
    assert float(tree.height.max()) == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_is_cut_into_the_largest_clusters_that_fit(seed):
    """As SciPy cuts a tree whose heights were replaced by weights."""
    rng = np.random.default_rng(seed)
    x, size = rng.normal(size=(30, 2)).astype(np.float32), rng.integers(1, 40, 30)
    most = size.sum() // 6
    theirs, weight = linkage(x, "ward"), list(map(float, size))
    for merge in theirs:
        weight.append(weight[int(merge[0])] + weight[int(merge[1])])
        merge[2] = weight[-1]
    tree = build_ward_tree(pairwise_distances(jnp.asarray(x)))
    got = number_clusters(cut_to_weight(tree, jnp.asarray(size, jnp.float32), jnp.float32(most)))
    assert same_partition(got.tolist(), fcluster(theirs, most, "distance").tolist())
    assert set(got.tolist()) == set(range(int(got.max()) + 1))


def test_dissimilarities_are_those_of_loops():
    x = np.array([[1.0, 0], [0, 2], [0, 0], [-3, 0]], np.float32)
    angle = np.pi * np.array([[0, 0.5, 0, 1], [0.5, 0, 0, 0.5], [0, 0, 0, 0], [1, 0.5, 0, 0]])
    np.testing.assert_allclose(measure_dissimilarity(jnp.asarray(x), "cosine"), angle, atol=1e-6)
    l1 = [[np.abs(a - b).sum() for b in x] for a in x]
    np.testing.assert_allclose(measure_dissimilarity(jnp.asarray(x), "l1"), l1)
    l2 = np.array([[np.sqrt(((a - b) ** 2).sum()) for b in x] for a in x])
    np.testing.assert_allclose(measure_dissimilarity(jnp.asarray(x), "l2"), l2, rtol=1e-6)
    np.testing.assert_allclose(measure_dissimilarity(jnp.asarray(x), "l2_squared"), l2**2, rtol=1e-6)


@pytest.mark.parametrize("measure", ["cosine", "l1", "l2", "l2_squared"])
@pytest.mark.parametrize("ward_on", ["distances", "rows"])
def test_whatever_the_similarity_the_distributions_are_unbiased(measure, ward_on):
    rng = np.random.default_rng(8)
    size, m = rng.integers(1, 90, 31), 6
    updates = jnp.asarray(rng.normal(size=(31, 5)), jnp.float32).at[4].set(0.0)
    selector = ClusteredSampling(measure=measure, ward_on=ward_on)
    check_unbiased(selector.distributions(updates, context(size, m)), size, m)
    away = np.arange(31) % 3 != 0
    chance = selector.distributions(updates, context(size, m, away))
    check_unbiased(chance, np.where(away, size, 0), m)


def test_groups_of_alike_clients_get_a_distribution_each():
    """Three directions, four clients each: with m = 3 every draw comes from another direction."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(3), 4)
    updates = np.eye(3)[group] * rng.uniform(1, 5, (12, 1)) + 0.01 * rng.normal(size=(12, 3))
    ctx = context(np.full(12, 10), 3)
    for ward_on in ("distances", "rows"):
        chance = np.asarray(ClusteredSampling(ward_on=ward_on).distributions(jnp.asarray(updates, jnp.float32), ctx))
        assert {tuple(np.unique(group[row > 0])) for row in chance} == {(0,), (1,), (2,)}
        np.testing.assert_allclose(chance[chance > 0], 1 / 4, rtol=1e-5)
    oracle = np.asarray(ClusteredSampling(by="oracle").distributions(jnp.asarray(group, jnp.int32), ctx))
    assert {tuple(np.unique(group[row > 0])) for row in oracle} == {(0,), (1,), (2,)}


@pytest.mark.parametrize("by", ["size", "similarity", "oracle"])
def test_the_expected_aggregate_is_that_of_full_participation(by):
    rng = np.random.default_rng(3)
    n, m, draws = 14, 4, 40_000
    size, delta = rng.integers(1, 60, n), rng.normal(size=(n, 3))
    state = {"size": (), "similarity": jnp.asarray(delta, jnp.float32), "oracle": jnp.arange(n) % 3}[by]
    cohort = jax.jit(jax.vmap(lambda key: ClusteredSampling(by=by).select(key, state, context(size, m))))(
        jax.random.split(KEY, draws)
    )
    np.testing.assert_allclose(cohort.weight, 1 / m)
    each = np.einsum("tk,tkp->tp", np.asarray(cohort.weight, float), delta[np.asarray(cohort.client)])
    error = each.std(0) / np.sqrt(draws)
    assert (np.abs(each.mean(0) - size @ delta / size.sum()) < 4.5 * error).all()


def test_its_variance_is_at_most_that_of_draws_by_size():
    rng = np.random.default_rng(4)
    n, m = 20, 5
    group = np.arange(n) % 5
    size, delta = np.full(n, 10), 3 * rng.normal(size=(5, 3))[group] + 0.1 * rng.normal(size=(n, 3))
    chance = np.asarray(ClusteredSampling().distributions(jnp.asarray(delta, jnp.float32), context(size, m)), float)
    p = size / size.sum()

    def variance(q):
        return q @ (delta**2).sum(1) - ((q @ delta) ** 2).sum()

    clustered, plain = sum(variance(q) for q in chance) / m**2, variance(p) / m
    assert clustered < 0.1 * plain


def test_updates_are_kept_of_those_who_came_back():
    state = jnp.zeros((5, 2))
    cohort = Cohort(jnp.array([3, PAD_CLIENT, 1]), jnp.array([True, False, False]), jnp.ones(3))
    after = ClusteredSampling().observe(KEY, state, context(np.ones(5), 3), cohort, sketch=jnp.ones((3, 2)))
    assert np.asarray(after).tolist() == [[0, 0], [0, 0], [0, 0], [1, 1], [0, 0]]


def test_the_oracle_pays_for_label_counts_and_similarity_pays_nothing(blobs):
    federation = fs.Federation(blobs, fs.partition.Dirichlet(clients=9, alpha=0.3))
    task = fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs)
    for by, paid in (("oracle", 4 * 3 * 9), ("size", 0), ("similarity", 0)):
        selector = ClusteredSampling(by=by, sketch=5)
        one = fs.Experiment(task, client_selection=selector, cohort_size=3, rounds=3)
        history = fs.simulate(one, federation, seeds=2)
        assert history["selection_bytes_up"].sum(1).tolist() == [paid] * 2
        assert np.isfinite(history["accuracy"]).all()
    assert selector.signals().after == {"sketch": fs.signals.Sketch(5)}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ClusteredSampling(by="shape"), "clustered_sampling: by"),
        (lambda: ClusteredSampling(measure="l3"), "clustered_sampling: measure"),
        (lambda: ClusteredSampling(sketch=0), "clustered_sampling: sketch is 0"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
