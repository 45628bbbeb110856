"""Optimal client sampling: chances by hand and in loops, and the expected aggregate of those who upload."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel as fs
from fedjax_sel.client_selection._unbiased import chances_of_inclusion
from fedjax_sel.client_selection.optimal_sampling import OptimalSampling, approximate_chances
from fedjax_sel.types import Cohort, Context

KEYS = jax.random.split(jax.random.key(0), 40_000)


def context(size, m):
    n = len(size)
    return Context(jnp.int32(3), jnp.int32(9), jnp.asarray(size, jnp.int32), jnp.ones(n, bool), cohort_size=m)


def approximate(u, m, steps=4):
    """Algorithm 2, message by message."""
    pi = [min(m * x / sum(u), 1) for x in u]
    for _ in range(steps):
        told = [(1, p) if p < 1 else (0, 0) for p in pi]
        count, total = map(sum, zip(*told, strict=True))
        if not total:
            break
        c = (m - len(u) + count) / total
        pi = [min(c * p, 1) if p < 1 else p for p in pi]
        if c <= 1:
            break
    return pi


def test_chances_by_hand_are_the_same_exactly_and_approximately():
    u, everybody = jnp.array([1.0, 2, 3, 10]), jnp.ones(4, bool)
    np.testing.assert_allclose(approximate_chances(u, 2, everybody), [1 / 6, 1 / 3, 1 / 2, 1], rtol=1e-5)
    np.testing.assert_allclose(approximate_chances(jnp.ones(4), 3, everybody), np.full(4, 0.75), rtol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_approximate_chances_are_those_of_the_messages(seed):
    rng = np.random.default_rng(seed)
    u, m = rng.pareto(1, 12), int(rng.integers(1, 12))
    got = approximate_chances(jnp.asarray(u, jnp.float32), m, jnp.ones(12, bool))
    np.testing.assert_allclose(got, approximate(u, m), rtol=1e-4)
    exact = np.asarray(chances_of_inclusion(jnp.asarray(u, jnp.float32), m))
    assert float(got.sum()) <= exact.sum() + 1e-3
    np.testing.assert_allclose(got, exact, atol=0.35)


@pytest.mark.parametrize("chances", ["optimal", "approximate"])
@pytest.mark.parametrize("by", ["size", "client"])
def test_the_expected_sum_of_those_who_upload_is_the_cohorts_mean(chances, by):
    """One of five did not come back; 2.5 upload in expectation."""
    size, delta = np.array([5, 10, 1, 30, 8, 4, 2]), np.random.default_rng(2).normal(size=(7, 3))
    client, back = np.array([3, 0, 6, 4, 1]), np.array([True, True, True, False, True])
    cohort = Cohort(jnp.asarray(np.where(back, client, -1)), jnp.asarray(back), jnp.asarray(back, jnp.float32))
    norm = jnp.asarray(np.where(back, np.linalg.norm(delta[client], axis=1), 0), jnp.float32)
    selector, ctx = OptimalSampling(2.5, chances, by), context(size, 5)
    accepted = jax.jit(jax.vmap(lambda key: selector.accept(key, (), ctx, cohort, update_norm=norm)))(KEYS)
    w = np.where(back, size[client] if by == "size" else 1, 0)
    w = w / w.sum()
    weight, mask = np.asarray(accepted.weight, float), np.asarray(accepted.mask)
    assert not mask[:, 3].any()
    assert (weight[~mask] == 0).all()
    assert mask.sum(1).mean() == pytest.approx(2.5, abs=0.03)
    each = weight @ delta[client]
    assert (np.abs(each.mean(0) - w @ delta[client]) < 4.5 * each.std(0) / np.sqrt(len(KEYS)) + 1e-6).all()


def test_members_decide_for_themselves():
    """The number of uploads varies as a sum of independent ones."""
    u = np.array([1.0, 2, 3, 4, 5, 6])
    cohort = Cohort(jnp.arange(6), jnp.ones(6, bool), jnp.ones(6))
    selector, ctx = OptimalSampling(2.0, weighting="client"), context(np.ones(6), 6)
    norm = jnp.asarray(u, jnp.float32)
    mask = np.asarray(jax.vmap(lambda key: selector.accept(key, (), ctx, cohort, update_norm=norm).mask)(KEYS))
    pi = 2 * u / u.sum()
    np.testing.assert_allclose(mask.mean(0), pi, atol=0.012)
    assert mask.sum(1).var() == pytest.approx((pi * (1 - pi)).sum(), rel=0.05)


def test_more_uploads_than_members_is_full_participation(blobs):
    """With as many uploads as members the run is that of a uniform cohort with the mean by size."""
    task = fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs)
    federation = fs.Federation(blobs, fs.partition.Dirichlet(clients=10, alpha=1.0))
    runs = []
    for selector, weighting in ((OptimalSampling(uploads=4.0), "cohort"), (fs.client_selection.Uniform(), "size")):
        mean = fs.aggregation.Mean(weighting)
        one = fs.Experiment(task, client_selection=selector, aggregation=mean, cohort_size=4, rounds=5)
        runs.append(fs.simulate(one, federation, seeds=2))
    np.testing.assert_array_equal(runs[0].selections, runs[1].selections)
    np.testing.assert_allclose(runs[0]["loss"], runs[1]["loss"], rtol=1e-4)


@pytest.mark.parametrize(("chances", "up", "down"), [("optimal", 1, 1), ("approximate", 9, 5)])
def test_who_does_not_upload_sends_its_numbers_only(blobs, chances, up, down):
    """A model has 27 numbers. Six train, about two upload."""
    one = fs.Experiment(
        fs.Task.on(fs.models.MLP(classes=3, hidden=(4,)), blobs),
        client_selection=OptimalSampling(2.0, chances),
        aggregation=fs.aggregation.Mean("cohort"),
        cohort_size=6,
        rounds=30,
    )
    history = fs.simulate(one, fs.Federation(blobs, fs.partition.Dirichlet(clients=10, alpha=1.0)), seeds=4)
    np.testing.assert_array_equal(history["bytes_down"], 6 * 4 * 27)
    np.testing.assert_array_equal(history["selection_bytes_up"], 6 * 4 * up)
    np.testing.assert_array_equal(history["selection_bytes_down"], 6 * 4 * down)
    uploads = history["bytes_up"] / (4 * 27)
    assert set(np.unique(uploads)) <= set(range(7))
    assert uploads.mean() == pytest.approx(2, abs=0.4)
    assert len(np.unique(uploads)) > 1
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: OptimalSampling(uploads=0.0), "optimal_sampling: uploads is 0.0; it must be above 0"),
        (lambda: OptimalSampling(chances="best"), "optimal_sampling: chances"),
    ],
)
def test_parameters_out_of_their_range_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
