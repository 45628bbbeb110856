"""CRAIG, FedCore and GradMatch against loops in NumPy; when a coreset is chosen anew; what a client then minimises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.data_selection._ops import share_among_classes
from fedjax_sel.data_selection.craig import CRAIG
from fedjax_sel.data_selection.fed_core import FedCore
from fedjax_sel.data_selection.grad_match import GradMatch
from fedjax_sel.types import Turn

KEY = jax.random.key(0)
L, N, CLASSES = 30, 27, 3
RNG = np.random.default_rng(5)
POINT = RNG.normal(size=(L, CLASSES)).astype(np.float32)
Y = np.where(np.arange(L) < 1, 2, np.arange(L) % 2)  # one example of class 2
VALID = np.arange(L) < N


def turn(round=0, affordable=None, validation=None):
    affordable = None if affordable is None else jnp.int32(affordable)
    return Turn(jnp.int32(round), jnp.int32(50), jnp.asarray(Y), (), affordable, validation or {}, CLASSES)


def choose(samples, now=None):
    now = turn() if now is None else now
    return np.asarray(samples.choose(KEY, jnp.asarray(POINT), jnp.asarray(VALID), now))


def budgets(count):
    return {c: -(-count * (Y[:N] == c).sum() // N) for c in range(CLASSES)}


def medoids(points, k, *, squared=False, exchange=False):
    """Greedy medoids, exchanged while that helps, and how many points each serves."""
    if not k:
        return {}
    d = np.linalg.norm(points[:, None] - points[None], axis=2) ** (2 if squared else 1)
    chosen = []
    for _ in range(k):
        costs = [np.inf if j in chosen else d[:, [*chosen, j]].min(1).sum() for j in range(len(d))]
        chosen.append(int(np.argmin(costs)))
    while exchange:
        pairs = [(o, j) for o in chosen for j in range(len(d)) if j not in chosen]
        costs = [d[:, [*(c for c in chosen if c != o), j]].min(1).sum() for o, j in pairs]
        if not pairs or min(costs) >= d[:, chosen].min(1).sum() * (1 - 1e-6):
            break
        out, new = pairs[int(np.argmin(costs))]
        chosen = [c for c in chosen if c != out] + [new]
    nearest = d[:, chosen].argmin(1)
    return {j: int((nearest == i).sum()) for i, j in enumerate(chosen)}


def exact_budgets(count):
    """By largest remainder, so that they are as many as a client can train on until the deadline."""
    ideal = {c: count * (Y[:N] == c).sum() / N for c in range(CLASSES)}
    out = {c: int(share) for c, share in ideal.items()}
    for c in sorted(ideal, key=lambda c: out[c] - ideal[c])[: count - sum(out.values())]:
        out[c] += 1
    return out


def expected(count, split=budgets, **how):
    sizes = np.zeros(L)
    for c, k in split(count).items():
        own = np.flatnonzero(VALID & (c == Y))
        for j, size in medoids(POINT[own], k, **how).items():
            sizes[own[j]] = size
    return sizes


@pytest.mark.parametrize("distance", ["euclidean", "squared"])
def test_craig_serves_each_class_greedily_and_weighs_by_clusters(distance):
    sizes = expected(8, squared=distance == "squared")
    weight = choose(CRAIG(fraction=0.3, distance=distance))
    np.testing.assert_allclose(weight, sizes * (sizes > 0).sum() / N, rtol=1e-6)
    np.testing.assert_allclose(weight[weight > 0].mean(), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(choose(CRAIG(fraction=0.3, distance=distance, weighting="none")), sizes > 0)


@pytest.mark.parametrize("affordable", [0, 5, 12])
def test_fed_core_takes_as_many_medoids_as_the_client_can_train_on(affordable):
    sizes = expected(max(affordable, 1), exact_budgets, exchange=True)
    weight = choose(FedCore(), turn(affordable=affordable))
    assert (weight > 0).sum() == max(affordable, 1), "one more would be too late"
    np.testing.assert_allclose(weight, sizes * (sizes > 0).sum() / N, rtol=1e-6)


def test_fed_core_takes_all_where_all_are_affordable_or_there_is_no_deadline():
    for now in (turn(affordable=N), turn(affordable=L), turn()):
        np.testing.assert_array_equal(choose(FedCore(), now), VALID)
    assert (choose(FedCore(fraction=0.2), turn()) > 0).sum() == sum(budgets(5).values())
    assert (choose(FedCore(fraction=0.2), turn(affordable=N)) > 0).sum() == sum(budgets(5).values()), "there is time"
    assert (choose(FedCore(fraction=0.2), turn(affordable=5)) > 0).sum() == 5 < sum(budgets(5).values())


def pursue(g, b, steps, ridge):
    chosen, w = [], np.zeros(0)
    for _ in range(min(steps, len(g))):
        score = np.abs(g @ (b - g[chosen].T @ w))
        score[chosen] = -np.inf
        chosen.append(int(score.argmax()))
        own = g[chosen]
        w = np.linalg.solve(own @ own.T + ridge * np.eye(len(chosen)), own @ b)
    return dict(zip(chosen, w, strict=True))


@pytest.mark.parametrize("target", ["client", "validation"])
@pytest.mark.parametrize("weighting", ["matched", "clamped", "none"])
def test_grad_match_matches_the_gradient_of_each_class_but_the_smallest(target, weighting):
    server = RNG.normal(size=(CLASSES, CLASSES)).astype(np.float32)
    weight = choose(
        GradMatch(fraction=0.3, target=target, weighting=weighting, ridge=0.2, tolerance=0.0),
        turn(validation={"gradient": jnp.asarray(server)}),
    )
    matched = np.full(L, np.nan)
    for c in (0, 1):
        own = np.flatnonzero(VALID & (c == Y))
        g, b = POINT[own].astype(float), POINT[own].sum(0) if target == "client" else len(own) * server[c]
        if weighting == "clamped":  # the mean, on the class's own row
            g, b = g[:, [c]], b[[c]] / len(own)
        for j, w in pursue(g, b.astype(float), budgets(8)[c], 0.2).items():
            matched[own[j]] = w
    known = ~np.isnan(matched)
    assert known.sum() == 8, "as many as are wanted: nothing is filled up"
    raw = {"matched": np.maximum(matched, 0), "clamped": np.clip(matched + 1, 1, 5), "none": np.ones(L)}[weighting]
    raw = np.where(known, raw, 0)
    raw /= raw[raw > 0].mean() if weighting == "matched" else 1
    np.testing.assert_allclose(weight, raw, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("fewest", [3, 13])
def test_grad_match_trains_on_though_gradients_shrink(fewest):
    """The ridge is absolute, so that it shrinks weights as gradients shrink; their mean is 1 all the same.

    Classes have 12, 13 and 1 examples: with `fewest=13` one is matched, and others are drawn at random.
    """
    samples, valid = GradMatch(fraction=0.5, fewest=fewest, tolerance=0.0), jnp.arange(L) < 26
    for scale in (1.0, 1e-3, 1e-9):
        weight = np.asarray(samples.choose(KEY, jnp.asarray(scale * POINT), valid, turn()))
        matched = (np.asarray(Y) == 1) & (weight > 0)
        np.testing.assert_allclose(weight[weight > 0].mean(), 1.0, rtol=1e-5)
        assert 10 <= (weight > 0).sum() <= 13
        assert weight[matched].sum() > 1


def test_no_weight_above_zero_leaves_all_that_are_chosen():
    """One example of each class, from which the server's gradient points away."""
    point, y = jnp.eye(3)[:2], jnp.array([0, 1])
    now = turn(validation={"gradient": -jnp.eye(3)}).replace(y=y)
    weight = GradMatch(fraction=1.0, fewest=1, target="validation").choose(KEY, point, jnp.ones(2, bool), now)
    assert weight.tolist() == [1, 1]


def test_clamped_weights_are_not_all_the_largest():
    """Of a class with many examples, too: they match a mean."""
    p = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(3), 300), jnp.float32)
    y = jnp.arange(300) % 3
    point = p - jax.nn.one_hot(y, 3)
    mean = jnp.stack([point[y == c].mean(0) for c in range(3)])
    now = turn(validation={"gradient": mean}).replace(y=y)
    for target in ("client", "validation"):
        weight = GradMatch(target=target, weighting="clamped").choose(KEY, point, jnp.ones(300, bool), now)
        assert 1 < float(weight.max()) < 2


def test_grad_match_fills_up_with_random_examples_where_classes_are_too_small():
    samples = GradMatch(fraction=0.3, fewest=100, weighting="clamped")
    sets = {
        tuple(np.flatnonzero(samples.choose(jax.random.key(k), jnp.asarray(POINT), jnp.asarray(VALID), turn())))
        for k in range(4)
    }
    assert {len(one) for one in sets} == {8}
    assert len(sets) == 4
    assert max(map(max, sets)) < N


def test_a_gradient_that_the_server_does_not_measure_is_refused():
    with pytest.raises(ValueError, match="grad_match: gradient is 'last_layer', but target is 'validation'"):
        GradMatch(gradient="last_layer", target="validation")
    assert GradMatch(target="validation").count_down(10) == 100
    assert GradMatch(target="validation", weighting="clamped").count_down(10) == 10


def test_a_coreset_is_kept_for_some_rounds():
    samples = GradMatch(fraction=0.3, every=3)
    state = jax.tree.map(lambda leaf: leaf[0], samples.init(2, L))
    asked, weights = [], []
    for round in (2, 3, 4, 5, 8):
        point = jnp.asarray(POINT) * (1 + round) ** jnp.arange(CLASSES)[None]
        known = {"point": point, "turn": turn(round)}
        asked.append(bool(samples.asks(state, jnp.int32(round))))
        weight = samples.select(KEY, state, jnp.asarray(VALID), **known)
        state = samples.observe(KEY, state, weight, **known)
        weights.append(np.asarray(weight))
    assert asked == [True, False, False, True, True]
    np.testing.assert_array_equal(weights[0], weights[2])
    assert (weights[2] != weights[3]).any()
    assert bool(CRAIG().asks((), jnp.int32(7)))


def test_layouts_choose_the_same_examples():
    """Examples that are nearest to each other represent both for the same cost; passes of other lengths round apart."""
    digits = fs.load("digits", num_examples=400)
    task = fs.Task.on(fs.models.MLP(classes=10, hidden=(5,)), digits)
    trainer = fs.local_training.SGD(batch_size=4)
    experiment = fs.Experiment(
        task, data_selection=FedCore(fraction=0.8), local_training=trainer, cohort_size=3, rounds=2
    )
    federation = fs.Federation(digits, fs.partition.Iid(6))
    together = fs.simulate(experiment, federation, seeds=[3, 8])
    in_turn = fs.simulate(experiment, federation, seeds=[3, 8], layout=fs.Layout(clients=1, seeds="scan", examples=37))
    np.testing.assert_allclose(in_turn["training_loss"], together["training_loss"], rtol=1e-4)
    np.testing.assert_allclose(in_turn["loss"], together["loss"], rtol=1e-4)


def test_clients_too_large_to_divide_among_classes_are_refused():
    y, valid, count = jnp.zeros(65_535, int), jnp.ones(65_535, bool), jnp.int32(60_000)
    assert int(share_among_classes(y, valid, count, 2)[0]) == 60_000
    more = "divides at most 65,535 examples of a client; the largest client has 70,000"
    with pytest.raises(ValueError, match=more):
        share_among_classes(jnp.zeros(70_000, int), jnp.ones(70_000, bool), count, 2)
