"""HiCS-FL: entropies, distances and clusters against NumPy and SciPy, and the chances of every sequence of draws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform

import fedjax_sel as fs
from fedjax_sel.client_selection.hics_fl import HiCSFL, HiCSFLState
from fedjax_sel.types import Cohort, Context

RNG = np.random.default_rng(0)
CHANGE = 0.004 * RNG.normal(size=(7, 3))
SIZE = np.array([10, 20, 30, 40, 5, 25, 15])


def context(m, round, size=SIZE, available=None):
    available = np.ones(len(size), bool) if available is None else available
    return Context(jnp.int32(round), jnp.int32(20), jnp.asarray(size, jnp.int32), jnp.asarray(available), cohort_size=m)


def entropies(change, temperature):
    p = np.exp(change / temperature - (change / temperature).max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -(p * np.log(p)).sum(1)


def distances(change, temperature, weight):
    h, n = entropies(change, temperature), len(change)
    out = np.zeros((n, n))
    for u, v in itertools.permutations(range(n), 2):
        lengths = np.linalg.norm(change[u]) * np.linalg.norm(change[v])
        angle = np.arccos(np.clip(change[u] @ change[v] / lengths, -1, 1)) if lengths else 0
        out[u, v] = angle + weight * abs(h[u] - h[v])
    return out


def test_entropies_and_distances_are_those_of_loops():
    change = CHANGE.copy()
    change[2] = 0
    entropy, distance = HiCSFL(temperature=0.004, entropy_weight=3.0).describe(jnp.asarray(change, jnp.float32))
    h = entropies(change, 0.004)
    h[2] = np.delete(h, 2).mean()  # a client that never returned is as even as the others are on the mean, not log 3
    np.testing.assert_allclose(entropy, h, rtol=1e-4)
    apart = 3 * np.abs(h[:, None] - h[None])
    old = 3 * np.abs(np.subtract.outer(entropies(change, 0.004), entropies(change, 0.004)))
    np.testing.assert_allclose(distance, distances(change, 0.004, 3.0) - old + apart, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("ward_on", ["distances", "rows"])
@pytest.mark.parametrize("in_cluster", ["size", "uniform"])
def test_sequences_of_draws_have_the_chances_of_the_rule(ward_on, in_cluster):
    """Three clusters by SciPy; two slots: 42 sequences. In round 5 of 20 γ is three quarters of γ₀.

    By Algorithm 1 a client drawn again is drawn anew, with its cluster; in the authors' code it is not in its cluster.
    """
    d = distances(CHANGE, 0.0025, 10.0)
    cluster = fcluster(linkage(pdist(d) if ward_on == "rows" else squareform(d, checks=False), "ward"), 3, "maxclust")
    h = entropies(CHANGE, 0.0025)
    mean = {c: h[cluster == c].mean() for c in set(cluster)}
    size = SIZE if in_cluster == "size" else np.ones(7)

    def chances(taken):
        left = np.array([i not in taken for i in range(7)])
        counted = np.ones(7, bool) if in_cluster == "size" else left
        pi = {c: np.exp(2 * (1 - 5 / 20) * mean[c]) for c in set(cluster[left])}
        drawn = np.zeros(7)
        for i in np.flatnonzero(left):
            drawn[i] = pi[cluster[i]] * size[i] / size[counted & (cluster == cluster[i])].sum()
        return drawn / drawn.sum()

    state = HiCSFLState(jnp.asarray(CHANGE, jnp.float32), jnp.ones(7, bool))
    selector = HiCSFL(gamma=2.0, clusters=3, ward_on=ward_on, in_cluster=in_cluster)
    draws = 40_000
    draw = jax.jit(jax.vmap(lambda key: selector.select(key, state, context(2, 5)).client))
    client = np.asarray(draw(jax.random.split(jax.random.key(0), draws)))
    for first, second in itertools.permutations(range(7), 2):
        p = chances([])[first] * chances([first])[second]
        got = (client == np.array([first, second])).all(1).mean()
        assert abs(got - p) < 4.5 * np.sqrt(p * (1 - p) / draws) + 1e-4


def test_at_the_beginning_even_clients_are_likelier_and_in_the_end_all_clusters_alike():
    even, one_sided = np.full((6, 3), 1e-6), np.tile([0.02, -0.01, -0.01], (6, 1))
    change = np.concatenate([even, one_sided]) * RNG.uniform(0.9, 1.1, (12, 1))
    state = HiCSFLState(jnp.asarray(change, jnp.float32), jnp.ones(12, bool))
    part = {}
    for round in (6, 20):
        selector, ctx = HiCSFL(clusters=2), context(2, round, np.ones(12))
        draw = jax.jit(jax.vmap(lambda key: selector.select(key, state, ctx).client))  # noqa: B023
        first = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))[:, 0]
        part[round] = np.mean(first < 6)
    gamma = 4 * (1 - 6 / 20)
    assert part[6] == pytest.approx(3**gamma / (3**gamma + 1), abs=0.03)  # entropies ln 3 and 0
    assert part[20] == pytest.approx(0.5, abs=0.04)


def test_the_first_rounds_visit_everybody():
    selector = HiCSFL()
    state = HiCSFLState(jnp.zeros((7, 3)), jnp.zeros(7, bool))
    seen = []
    for round in range(4):
        cohort = selector.select(jax.random.key(round), state, context(2, round))
        seen += cohort.client.tolist()
        told = {"output_update": jnp.full((2, 3), round + 1.0)}
        state = selector.observe(jax.random.key(9), state, context(2, round), cohort, **told)
    assert set(seen) == set(range(7))
    assert state.seen.all()


def test_changes_are_kept_of_those_who_came_back():
    state = HiCSFLState(jnp.zeros((4, 2)), jnp.zeros(4, bool))
    cohort = Cohort(jnp.array([3, 1, -1]), jnp.array([True, False, False]), jnp.ones(3))
    after = HiCSFL().observe(jax.random.key(0), state, context(3, 0), cohort, output_update=jnp.ones((3, 2)))
    assert after.change.tolist() == [[0, 0], [0, 0], [0, 0], [1, 1]]
    assert after.seen.tolist() == [False, True, False, True]


def test_only_those_available_are_drawn_from_their_clusters():
    away = np.array([True, False, False, True, False, False, False])
    state = HiCSFLState(jnp.asarray(CHANGE, jnp.float32), jnp.ones(7, bool))
    cohort = HiCSFL().select(jax.random.key(0), state, context(4, 9, available=away))
    assert sorted(cohort.client.tolist()) == [-1, -1, 0, 3]


def test_it_runs_and_costs_the_clients_nothing(blobs):
    federation = fs.Federation(blobs, fs.partition.Dirichlet(clients=10, alpha=0.2))
    one = fs.Experiment(
        fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs),
        client_selection=HiCSFL(),
        cohort_size=3,
        rounds=8,
    )
    history = fs.simulate(one, federation, seeds=2)
    np.testing.assert_array_equal(history["selection_bytes_up"], 0)
    assert np.isfinite(history["loss"]).all()
    assert all(len(set(cohort)) == 3 for run in history.selections for cohort in run.tolist())
    asked = HiCSFL(signature="weights", layer="Dense_1").signals().after
    assert asked == {"output_update": fs.signals.OutputUpdate("weights", "Dense_1")}


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        (HiCSFL(clusters=11), "hics_fl: clusters is 11, but there are N = 10 clients"),
        (HiCSFL(layer="Dense_0"), "hics_fl: the bias of layer 'Dense_0' has 4 numbers, but there are 3 classes"),
        (HiCSFL(layer="head"), "output_update: layer is 'head'.*Dense_0, Dense_1"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_compiles(blobs, selector, says):
    federation = fs.Federation(blobs, fs.partition.Iid(clients=10))
    task = fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs)
    with pytest.raises(ValueError, match=says):
        fs.simulate(fs.Experiment(task, client_selection=selector, cohort_size=3, rounds=2), federation)


def test_a_personal_output_layer_is_refused(blobs):
    federation = fs.Federation(blobs, fs.partition.Iid(clients=10), holdout=0.2)
    task = fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs).replace(personal=("Dense_1",))
    with pytest.raises(ValueError, match="hics_fl: the output layer is a personal part"):
        fs.simulate(fs.Experiment(task, client_selection=HiCSFL(), cohort_size=3, rounds=2), federation)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: HiCSFL(temperature=0.0), "hics_fl: temperature is 0.0; it must be 1e-30 or above"),
        (lambda: HiCSFL(clusters=0), "hics_fl: clusters is 0"),
        (lambda: HiCSFL(in_cluster="loss"), "hics_fl: in_cluster"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
