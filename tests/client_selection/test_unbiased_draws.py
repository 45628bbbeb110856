"""MD, importance sampling, and the draws they are made of: expected aggregates against full participation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.aggregation.fednova import FedNova
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.client_selection._unbiased import chances_of_inclusion, draw_unbiased, normalize
from fedjax_sel.client_selection.by_size import BySize
from fedjax_sel.client_selection.clustered_sampling import ClusteredSampling
from fedjax_sel.client_selection.critical_fl import CriticalFL
from fedjax_sel.client_selection.delta import Delta
from fedjax_sel.client_selection.importance import Importance
from fedjax_sel.client_selection.k_vib import KVib
from fedjax_sel.client_selection.md import MD
from fedjax_sel.client_selection.optimal_sampling import OptimalSampling
from fedjax_sel.client_selection.uniform import Uniform
from fedjax_sel.engine.cohort import merge_duplicates
from fedjax_sel.types import Cohort, Context
from tests.quadratic import TASK, clients, gradient, weights_of

KEYS = jax.random.split(jax.random.key(0), 40_000)
N, M = 12, 4
RNG = np.random.default_rng(1)
SIZE, NORM, DELTA = RNG.integers(1, 60, N), RNG.exponential(size=N), RNG.normal(size=(N, 3))
AWAY = np.arange(N) != 3


def context(m=M, available=None):
    available = np.ones(N, bool) if available is None else available
    return Context(jnp.int32(3), jnp.int32(9), jnp.asarray(SIZE, jnp.int32), jnp.asarray(available), cohort_size=m)


def check_expected(select, wanted):
    """The mean over many draws of `Σ weight_i Δ_i` is within 4.5 standard errors."""
    cohort = jax.jit(jax.vmap(lambda key: merge_duplicates(select(key))))(KEYS)
    each = np.einsum("tk,tkp->tp", np.asarray(cohort.weight, float), DELTA[np.asarray(cohort.client)])
    assert (np.abs(each.mean(0) - wanted) < 4.5 * each.std(0) / np.sqrt(len(KEYS)) + 1e-6).all()
    return cohort, each


def weights(by, available):
    p = np.where(available, SIZE if by == "size" else 1, 0)
    return p / p.sum()


@pytest.mark.parametrize("available", [np.ones(N, bool), AWAY])
def test_the_mean_of_draws_by_size_is_full_participation_in_expectation(available):
    p = weights("size", available)
    ctx = context(available=available)
    cohort, _ = check_expected(lambda key: MD().select(key, (), ctx), p @ DELTA)
    client, weight = np.asarray(cohort.client), np.asarray(cohort.weight)
    np.testing.assert_allclose(weight.sum(1), 1, rtol=1e-5)
    inclusion = [(client == i).any(1).mean() for i in range(N)]
    np.testing.assert_allclose(inclusion, 1 - (1 - p) ** M, atol=0.012)
    assert set(np.round(M * weight, 4).ravel()) <= {0, 1, 2, 3, 4}


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("by", ["size", "client"])
@pytest.mark.parametrize("available", [np.ones(N, bool), AWAY])
def test_importance_sampling_is_full_participation_in_expectation(replacement, by, available):
    p, ctx = weights(by, available), context(available=available)
    selector = Importance(weighting=by, replacement=replacement)
    norm = jnp.asarray(NORM, jnp.float32)
    cohort, _ = check_expected(lambda key: selector.select(key, (), ctx, gradient_norm=norm), p @ DELTA)
    client = np.asarray(cohort.client)
    inclusion = np.array([(client == i).any(1).mean() for i in range(N)])
    q = p * NORM / (p @ NORM)
    wanted = 1 - (1 - q) ** M if replacement else of_inclusion(q, M)
    np.testing.assert_allclose(inclusion, wanted, atol=0.012)
    if not replacement:
        assert cohort.mask.all()
        assert all(len(set(row)) == M for row in client[:500].tolist())


def test_its_variance_is_least_where_updates_are_gradients():
    """Of updates that are the gradients, the variance of the sum is below that of draws by size and of equal draws."""
    norm = jnp.asarray(np.linalg.norm(DELTA, axis=1), jnp.float32)
    p, ctx = weights("size", np.ones(N, bool)), context()
    variance = {}
    for name, select in {
        "importance": lambda key: Importance(replacement=True).select(key, (), ctx, gradient_norm=norm),
        "different": lambda key: Importance().select(key, (), ctx, gradient_norm=norm),
        "size": lambda key: MD().select(key, (), ctx),
        "equal": lambda key: draw_unbiased(key, jnp.ones(N), jnp.asarray(p, jnp.float32), M),
    }.items():
        variance[name] = check_expected(select, p @ DELTA)[1].var(0).sum()
    expected = ((p * np.linalg.norm(DELTA, axis=1)).sum() ** 2 - ((p @ DELTA) ** 2).sum()) / M  # in closed form
    assert variance["importance"] == pytest.approx(expected, rel=0.05)
    assert variance["importance"] < min(variance["size"], variance["equal"])
    assert variance["different"] < variance["importance"]


def test_a_part_of_the_chances_can_be_uniform_and_without_gradients_they_are_by_size():
    ctx, norm = context(), jnp.zeros(N).at[5].set(2.0)
    select = Importance(uniform=0.25, replacement=True, weighting="client").select
    client = np.asarray(jax.vmap(lambda key: select(key, (), ctx, gradient_norm=norm).client)(KEYS[:10_000]))
    chance = np.full(N, 0.25 / N)
    chance[5] += 0.75
    np.testing.assert_allclose(np.bincount(client.ravel(), minlength=N) / client.size, chance, atol=0.01)
    select = Importance(replacement=True).select
    client = np.asarray(jax.vmap(lambda key: select(key, (), ctx, gradient_norm=jnp.zeros(N)).client)(KEYS[:10_000]))
    np.testing.assert_allclose(np.bincount(client.ravel(), minlength=N) / client.size, SIZE / SIZE.sum(), atol=0.01)


def of_inclusion(u, m):
    """Equation (7) of optimal client sampling: `l` is the largest that leaves no chance above 1."""
    u, n = np.asarray(u, float), len(u)
    order = np.argsort(u)
    for count in range(n, 0, -1):
        low = order[:count]
        if 0 < m + count - n <= u[low].sum() / u[low[-1]] + 1e-12:
            pi = np.ones(n)
            pi[low] = (m + count - n) * u[low] / u[low].sum()
            return pi
    return (u > 0).astype(float)


def test_chances_of_inclusion_by_hand():
    """1, 2 and 3 share one of two uploads, the ten has the other; equal ones share equally."""
    np.testing.assert_allclose(chances_of_inclusion(jnp.array([1.0, 2, 3, 10]), 2), [1 / 6, 1 / 3, 1 / 2, 1], rtol=1e-5)
    np.testing.assert_allclose(chances_of_inclusion(jnp.ones(8), 3), np.full(8, 3 / 8), rtol=1e-5)
    np.testing.assert_allclose(chances_of_inclusion(jnp.array([0.0, 2, 0, 5]), 3), [0, 1, 0, 1])
    np.testing.assert_allclose(chances_of_inclusion(jnp.zeros(3), 2), np.zeros(3))
    np.testing.assert_allclose(chances_of_inclusion(jnp.array([3.0, 1.0]), 2), [1, 1])
    np.testing.assert_allclose(chances_of_inclusion(jnp.array([3.0, 1.0]), 0.5), [0.375, 0.125])


@pytest.mark.parametrize("seed", range(20))
def test_chances_of_inclusion_are_the_sources(seed):
    rng = np.random.default_rng(seed)
    u, m = rng.pareto(1, 15), float(rng.integers(1, 15))
    got = np.asarray(chances_of_inclusion(jnp.asarray(u, jnp.float32), m))
    np.testing.assert_allclose(got, of_inclusion(u, m), rtol=1e-3, atol=1e-5)
    assert got.sum() == pytest.approx(m, rel=1e-4)


def test_weights_of_nothing_are_nothing():
    assert normalize(jnp.zeros(3)).tolist() == [0, 0, 0]
    nobody = np.zeros(N, bool)
    for selector in (MD(), Importance(), Importance(replacement=True)):
        told = {} if isinstance(selector, MD) else {"gradient_norm": jnp.ones(N)}
        cohort = selector.select(KEYS[0], (), context(available=nobody), **told)
        assert not cohort.mask.any()
        assert cohort.weight.tolist() == [0] * M


class Weighs(fs.ClientSelector):
    """Three clients, whose weights do not sum to 1."""

    def select(self, key, state, ctx):
        return Cohort(jnp.array([4, 1, 2]), jnp.ones(3, bool), jnp.array([0.5, 2.0, 0.25]))


def test_with_the_cohorts_weights_the_model_moves_by_their_sum():
    """One round from zero: the new model is `Σ weight_i Δ_i`."""
    one = fs.Experiment(
        TASK,
        client_selection=Weighs(),
        local_training=fs.local_training.SGD(0.1, batch_size=None, steps=1),
        aggregation=Mean("cohort"),
        cohort_size=3,
        rounds=1,
    )
    wanted = sum(-0.1 * weight * gradient(np.zeros(2), i) for i, weight in ((4, 0.5), (1, 2.0), (2, 0.25)))
    np.testing.assert_allclose(weights_of(fs.simulate(one, clients())), wanted, rtol=1e-5)


def test_importance_is_billed_a_pass_and_a_number_of_everybody(blobs):
    noise = Importance(noise=True, batch_size=8).signals().before
    assert noise == {"gradient_norm": fs.signals.GradientNoise(8, around="zero")}
    one = fs.Experiment(
        fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs),
        client_selection=Importance(),
        aggregation=fs.aggregation.Mean("cohort"),
        cohort_size=M,
        rounds=3,
    )
    history = fs.simulate(one, fs.Federation(blobs, fs.partition.Dirichlet(clients=N, alpha=1.0)), seeds=2)
    np.testing.assert_array_equal(history["selection_bytes_up"], 4 * N)
    of_an_example = (1 + one.task.backward(blobs.x)) * one.task.flops(blobs.x)
    np.testing.assert_allclose(history["selection_flops"], of_an_example * len(blobs.x), rtol=1e-6)
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Importance(uniform=1.5), r"importance: uniform is 1.5; it must be in \[0, 1\]"),
        (lambda: Importance(weighting="loss"), "importance: weighting"),
        (lambda: Importance(batch_size=0), "importance: batch_size is 0"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


BY_SIZE = [
    BySize(),
    Delta(variant="code"),
    MD(),
    Importance(),
    OptimalSampling(),
    KVib(),
    ClusteredSampling(by="size"),
    CriticalFL(MD()),
]


@pytest.mark.parametrize("selector", BY_SIZE, ids=lambda selector: type(selector).__name__)
def test_sizes_that_would_count_twice_are_warned_of(selector):
    iris = fs.load("iris")
    data = fs.Federation(iris, fs.partition.Dirichlet(clients=8)).draw(0)
    task = fs.Task.on(fs.models.LogisticRegression(classes=3), iris)
    make = partial(fs.Experiment, task, client_selection=selector, cohort_size=4, rounds=1)
    with pytest.warns(UserWarning, match=r"already weighs clients by .*size.*use weighting='client' or 'cohort"):
        make(aggregation=Mean("size")).warn_of_sizes(data)
    for weighting in ("cohort", "client"):
        make(aggregation=Mean(weighting)).warn_of_sizes(data)
    with pytest.warns(UserWarning, match=r"and FedNova does so again.*use Mean with weighting='client' or 'cohort"):
        make(aggregation=FedNova()).warn_of_sizes(data)
    equal = data.replace(num_examples=np.full(8, 12))
    make(aggregation=Mean("size")).warn_of_sizes(equal)


@pytest.mark.parametrize(
    "selector", [Uniform(), Delta(), Importance(weighting="client"), OptimalSampling(weighting="client")]
)
def test_of_equal_weights_nothing_counts_twice(selector):
    assert not selector.counts_examples
