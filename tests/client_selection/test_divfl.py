"""DivFL against facility location in loops, and numbers worked out by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection.divfl import DivFL, DivFLState
from fedjax_sel.kernels.facility_location import count_served, locate_facilities, pairwise_distances
from fedjax_sel.signals.sketch import sketch_tree
from fedjax_sel.types import PAD_CLIENT, Cohort, Context

KEY = jax.random.key(0)
FIVE = np.array([[0, 0], [1, 0], [0, 1], [10, 10], [11, 10]], np.float32)


def context(n, m, available=None, round=0):
    available = np.ones(n, bool) if available is None else available
    return Context(jnp.int32(round), jnp.int32(9), jnp.full(n, 10), jnp.asarray(available), cohort_size=m)


def distances(g):
    g = np.asarray(g, float)
    return np.array([[np.sqrt(((a - b) ** 2).sum()) for b in g] for a in g])


def cost(distance, chosen):
    return sum(min(row[j] for j in chosen) for row in distance)


def greedy(distance, m, allowed=None):
    """One after the other, the first of the best."""
    chosen = []
    for _ in range(m):
        left = [j for j in range(len(distance)) if j not in chosen and (allowed is None or allowed[j])]
        chosen.append(min(left, key=lambda j: cost(distance, [*chosen, j])))
    return chosen


def test_the_greedy_set_of_five_points_is_not_the_best():
    """The medoid 1 (or 2) comes first, then 3: in all 1 + √2 + 1. The best pair, {0, 3}, costs 1 + 1 + 1."""
    distance = distances(FIVE)
    chosen = greedy(distance, 2)
    assert chosen == [1, 3]
    assert cost(distance, chosen) == pytest.approx(3.41421, abs=1e-5)
    best = min(itertools.combinations(range(5), 2), key=lambda s: cost(distance, s))
    assert cost(distance, best) == pytest.approx(3.0)
    assert set(best) in ({0, 3}, {0, 4})
    client, mask = locate_facilities(KEY, jnp.asarray(distance, jnp.float32), jnp.ones(5, bool), 2)
    assert mask.all()
    assert int(client[0]) in (1, 2)  # 1 and 2 tie as medoids
    assert cost(distance, client.tolist()) == pytest.approx(3.41421, abs=1e-5)


def test_points_on_a_line_are_served_by_their_medoids():
    """0, 1, 2 and 10, 11: the optimum {1, 10} costs 3, and its facilities serve three and two."""
    x = np.array([[0.0], [1], [2], [10], [11]], np.float32)
    distance = distances(x)
    best = min(itertools.combinations(range(5), 2), key=lambda s: cost(distance, s))
    assert cost(distance, best) == pytest.approx(3)
    facility = jnp.array([1, 3, PAD_CLIENT])
    served = count_served(jnp.asarray(distance, jnp.float32), facility, facility >= 0, jnp.ones(5, bool))
    assert served.tolist() == [3, 2, 0]


def test_a_facility_serves_itself_also_where_another_is_at_the_same_place():
    distance = jnp.zeros((6, 6))
    served = count_served(distance, jnp.array([4, 1, 2]), jnp.ones(3, bool), jnp.ones(6, bool))
    assert served.tolist() == [4, 1, 1], "the other three points go to the first"
    served = count_served(distance, jnp.array([4, 1, 2]), jnp.array([True, False, True]), jnp.ones(6, bool))
    assert served.tolist() == [5, 0, 1]


@jax.jit
def select(selector, ctx, gradient):
    """Compiled once for each weighting."""
    return selector.select(KEY, (), ctx, gradient=gradient)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("some", [False, True])
def test_a_cohort_is_that_of_the_greedy_loop_and_weighs_whom_it_serves(seed, some):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(17, 6)).astype(np.float32)
    available = rng.random(17) < 0.5 if some else np.ones(17, bool)
    m = 4
    ctx = context(17, m, available, round=3)
    cohort = select(DivFL(gradients="all"), ctx, g)
    distance = distances(g)
    reached = np.flatnonzero(available)  # who is stood for
    chosen = cohort.client[cohort.mask].tolist()
    assert len(set(chosen)) == min(m, available.sum())
    assert available[chosen].all()
    for k in range(len(chosen)):  # two clients that are nearest to each other alone tie
        left = [j for j in range(17) if available[j] and j not in chosen[:k]]
        least = min(cost(distance[reached], [*chosen[:k], j]) for j in left)
        assert cost(distance[reached], chosen[: k + 1]) == pytest.approx(least, rel=1e-5)
    nearest = [min(chosen, key=lambda j: distance[i, j]) for i in reached]
    gamma = [nearest.count(j) / len(reached) for j in chosen]
    np.testing.assert_allclose(cohort.weight[cohort.mask], gamma, rtol=1e-6)
    plain = select(DivFL(gradients="all", weighting="none"), ctx, g)
    assert plain.weight.tolist() == [1.0] * len(chosen) + [0.0] * (m - len(chosen))
    assert plain.client.tolist() == cohort.client.tolist()


def test_equal_gradients_give_every_client_the_same_chance():
    draw = jax.jit(
        jax.vmap(lambda key: DivFL(gradients="all").select(key, (), context(6, 2), gradient=jnp.ones((6, 3))))
    )
    client = np.asarray(draw(jax.random.split(KEY, 3000)).client)
    np.testing.assert_allclose(np.bincount(client.ravel(), minlength=6) / 3000, 1 / 3, atol=0.04)
    assert (client[:, 0] != client[:, 1]).all()


def test_stale_gradients_are_everybodys_in_round_0_and_then_those_of_the_members():
    n, m = 6, 2
    rng = np.random.default_rng(1)
    first, later = rng.normal(size=(2, n, 3)).astype(np.float32)
    available = np.arange(n) != 5
    selector = DivFL(sketch=3)
    state = DivFLState(jnp.zeros((n, 3)), jnp.zeros((n, n)), jnp.zeros(n, bool))
    cohort = Cohort(jnp.array([4, 0]), jnp.array([True, False]), jnp.ones(m))
    values = {"gradient": jnp.asarray(first), "trained_gradient": jnp.asarray(later[[4, 0]])}
    state = selector.observe(KEY, state, context(n, m, available), cohort, **values)
    wanted = first.copy()
    wanted[5], wanted[4] = 0, later[4]  # not reached; merged. 0 did not come back
    np.testing.assert_allclose(state.gradient, wanted)
    np.testing.assert_allclose(state.distance, distances(wanted), atol=1e-5)
    assert np.flatnonzero(state.silent).tolist() == [0]
    assert 0 not in selector.select(KEY, state, context(n, m, round=1), gradient=jnp.asarray(first)).client.tolist()

    cohort = Cohort(jnp.array([5, 1]), jnp.ones(m, bool), jnp.ones(m))
    values = {"gradient": jnp.full((n, 3), 7.0), "trained_gradient": jnp.asarray(later[[5, 1]])}
    state = selector.observe(KEY, state, context(n, m, round=1), cohort, **values)
    wanted[5], wanted[1] = later[5], later[1]
    np.testing.assert_allclose(state.gradient, wanted)
    np.testing.assert_allclose(state.distance, distances(wanted), atol=1e-5)
    chosen = selector.select(KEY, state, context(n, m, round=2), gradient=jnp.full((n, 3), 7.0))
    assert chosen.client.tolist() == greedy(distances(wanted), m, ~np.asarray(state.silent))
    turns = [selector.observe(jax.random.key(k), state, context(n, m, round=2), cohort, **values) for k in range(60)]
    assert 0 < sum(not one.silent[0] for one in turns) < 60, "by chance it has another turn"


def test_a_members_gradient_is_that_at_the_model_it_received(blobs):
    """With all clients in every round, it is what everybody's would be; local training is long."""
    parts = {"cohort_size": 12, "rounds": 3, "local_training": fs.local_training.SGD(0.5, epochs=5)}
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), blobs)
    seen = {}

    class Watch(DivFL):
        def observe(self, key, state, ctx, cohort, **values):
            jax.debug.callback(
                lambda round, client, all, mine: seen.update({int(round): (client, all, mine)}),
                ctx.round,
                cohort.client,
                values["gradient"],
                values["trained_gradient"],
            )
            return super().observe(key, state, ctx, cohort, **values)

        def asks(self, round):
            return round >= 0

    federation = fs.Federation(blobs, fs.partition.Iid(clients=12))
    fs.simulate(fs.Experiment(task, client_selection=Watch(), **parts), federation, seeds=[0])
    assert sorted(seen) == [0, 1, 2]
    for client, everybody, mine in seen.values():
        np.testing.assert_allclose(mine, np.asarray(everybody)[np.asarray(client)], rtol=1e-4, atol=1e-5)


def test_the_stochastic_greedy_rule_tries_only_some():
    """With m of N = 10 m tried, the medoid is chosen first in a tenth of the draws, not always."""
    g = jnp.asarray(np.random.default_rng(2).normal(size=(40, 2)), jnp.float32)
    medoid = int(np.argmin(distances(g).sum(0)))
    select = DivFL(gradients="all", greedy="stochastic").select
    first = jax.jit(jax.vmap(lambda key: select(key, (), context(40, 4), gradient=g).client))(
        jax.random.split(KEY, 4000)
    )
    assert np.mean(np.asarray(first)[:, 0] == medoid) == pytest.approx(0.1, abs=0.02)
    assert all(len(set(cohort)) == 4 for cohort in np.asarray(first).tolist())


def test_a_sketch_keeps_distances_about():
    g = np.random.default_rng(3).normal(size=(8, 4000)).astype(np.float32)
    near = pairwise_distances(jax.vmap(lambda row: sketch_tree({"w": row}, 512))(jnp.asarray(g)))
    off = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(np.asarray(near)[off], distances(g)[off], rtol=0.15)


def test_gradients_are_billed_in_round_0_and_of_members_afterwards(blobs):
    """A model has 2·4 + 4 + 4·3 + 3 = 27 numbers; so has a gradient."""
    clients, m, model = 12, 3, 4 * 27
    experiment = fs.Experiment(
        fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs),
        client_selection=DivFL(),
        aggregation=fs.aggregation.Mean("cohort"),
        cohort_size=m,
        rounds=4,
    )
    federation = fs.Federation(blobs, fs.partition.Iid(clients=clients))
    history = fs.simulate(experiment, federation, seeds=2)
    np.testing.assert_array_equal(history["bytes_up"], m * model)
    up = np.array([clients * model + m * model, *[m * model] * 3])
    np.testing.assert_array_equal(history["selection_bytes_up"], [up, up])
    few = fs.simulate(experiment.replace(client_selection=DivFL(sketch=5)), federation, seeds=[0])
    np.testing.assert_array_equal(few["selection_bytes_up"][0], 4 * 5 * np.array([clients + m, m, m, m]))
    whole = fs.simulate(experiment.replace(client_selection=DivFL(gradients="all")), federation, seeds=[0])
    np.testing.assert_array_equal(whole["selection_bytes_up"], clients * model)
    assert np.isfinite(history["accuracy"]).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DivFL(sketch=0), "divfl: sketch is 0; it must be a whole number, at least 1"),
        (lambda: DivFL(gradients="fresh"), "divfl: gradients"),
        (lambda: DivFL(weighting="size"), "divfl: weighting"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_the_model_that_a_member_received_has_the_personal_parts_from_before_it_trained(blobs):
    """With all clients in every round, everybody's gradient at its own model is the member's."""
    parts = {"cohort_size": 12, "rounds": 2, "local_training": fs.local_training.SGD(0.5, epochs=5)}
    model = fs.models.MLP(classes=3, hidden=(4,))
    task = fs.Task.on(model, blobs).replace(personal=("Dense_1",))
    seen = []

    class Watch(DivFL):
        def observe(self, key, state, ctx, cohort, **values):
            told = cohort.client, values["gradient"], values["trained_gradient"]
            jax.debug.callback(lambda *told: seen.append(told), *told)
            return super().observe(key, state, ctx, cohort, **values)

        def asks(self, round):
            return round >= 0

    federation = fs.Federation(blobs, fs.partition.Iid(clients=12))
    fs.simulate(fs.Experiment(task, client_selection=Watch(), **parts), federation, seeds=[0])
    assert len(seen) == 2
    for client, everybody, mine in seen:
        np.testing.assert_allclose(mine, np.asarray(everybody)[np.asarray(client)], rtol=1e-4, atol=1e-5)
