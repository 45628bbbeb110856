"""Robust aggregators against NumPy transcriptions of their papers, also where slots are empty."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Layout, Task, simulate
from fedjax_sel.aggregation.krum import Krum
from fedjax_sel.aggregation.mean import Mean
from fedjax_sel.aggregation.median import Median
from fedjax_sel.aggregation.trimmed_mean import TrimmedMean
from fedjax_sel.data.partition import Iid
from fedjax_sel.local_training.sgd import SGD
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.types import Cohort, Plan
from tests.quadratic import TASK, A, clients, gradient, weights_of

pytestmark = pytest.mark.filterwarnings("ignore:krum. f is")  # six clients are few; it has a test of its own

ROBUST = [Median(), TrimmedMean(0.2), TrimmedMean(0.4), Krum(), Krum(f=2), Krum(f=1, num_selected=3)]


def median(updates):
    """Yin et al., Definition 1: the usual one-dimensional median of each coordinate."""
    return np.median(updates, axis=0)


def trimmed_mean(updates, beta):
    """Yin et al., Definition 2: without the largest and the smallest fraction beta of each coordinate's values."""
    cut = int(np.floor(round(beta * len(updates), 6)))
    return np.sort(updates, axis=0)[cut : len(updates) - cut].mean(0)


def krum(updates, f, num_selected):
    """Blanchard et al., section 4: the smallest sum of squared distances to the n - f - 2 closest others."""
    n = len(updates)
    scores = []
    for i in range(n):
        distances = sorted(np.sum((updates[i] - updates[j]) ** 2) for j in range(n) if j != i)
        scores.append(sum(distances[: max(n - f - 2, 1)]))
    return updates[np.argsort(scores, kind="stable")[:num_selected]].mean(0)


def by_hand(aggregator, updates):
    """What its paper makes of the rows of a matrix."""
    if isinstance(aggregator, Median):
        return median(updates)
    if isinstance(aggregator, TrimmedMean):
        return trimmed_mean(updates, aggregator.beta)
    return krum(updates, aggregator.f, aggregator.num_selected)


@pytest.mark.parametrize("aggregator", ROBUST, ids=str)
@pytest.mark.parametrize("filled", [9, 8, 5, 4, 3, 2, 1])
def test_a_robust_rule_is_its_text_among_those_who_are_present(aggregator, filled):
    rng = np.random.default_rng(filled)
    present = np.isin(np.arange(9), rng.permutation(9)[:filled])
    flat = np.where(present[:, None], rng.normal(size=(9, 7)), np.nan).astype(np.float32)
    tree = {"a": jnp.asarray(flat[:, :6].reshape(9, 2, 3)), "b": jnp.asarray(flat[:, 6])}
    got = jax.jit(lambda a, t, w: a.combine(t, w))(aggregator, tree, jnp.where(present, 1 / filled, 0.0))
    got = np.concatenate([np.ravel(got["a"]), np.ravel(got["b"])])
    np.testing.assert_allclose(got, by_hand(aggregator, flat[present].astype(np.float64)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("aggregator", ROBUST, ids=str)
def test_nobody_changes_nothing(aggregator):
    got = aggregator.combine({"w": jnp.full((4, 2), jnp.nan)}, jnp.zeros(4))
    np.testing.assert_array_equal(got["w"], 0)


@pytest.mark.parametrize("aggregator", [Median(), TrimmedMean(0.3), Krum(f=3), Krum(f=3, num_selected=4)], ids=str)
def test_a_minority_of_arbitrary_updates_moves_nothing_far(aggregator):
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(10, 5))
    for attack in (1e6, -1e6, 1e20):
        updates = jnp.asarray(np.concatenate([np.full((3, 5), attack), honest[:7]]), jnp.float32)
        got = np.asarray(aggregator.combine(updates, jnp.full(10, 0.1)))
        assert np.all(got >= honest.min(0) - 1e-5), attack
        assert np.all(got <= honest.max(0) + 1e-5), attack
    assert np.abs(np.asarray(Mean().combine(updates, jnp.full(10, 0.1)))).max() > 1e6


def test_the_trimmed_fraction_is_traced_and_every_count_of_it_is_right():
    traced = []

    @jax.jit
    def combine(aggregator, updates, weights):
        traced.append(1)
        return aggregator.combine(updates, weights)

    updates = np.random.default_rng(1).normal(size=(30, 2)).astype(np.float32)
    for beta, filled in itertools.product([0.0, 0.1, 0.2, 0.3, 0.49], [30, 29, 10, 3]):
        weights = jnp.where(jnp.arange(30) < filled, 1.0, 0.0)
        got = combine(TrimmedMean(beta), updates, weights)
        np.testing.assert_allclose(got, trimmed_mean(updates[:filled], beta), rtol=1e-4, atol=1e-6)
    assert len(traced) == 1


def test_a_fraction_that_32_bits_round_to_one_half_leaves_the_middle():
    updates = jnp.array([1.0, 7.0, 2.0, 99.0])
    for filled, middle in ((4, 4.5), (3, 2.0), (2, 4.0), (1, 1.0)):
        got = TrimmedMean(0.5 - 1e-9).combine(updates, jnp.where(jnp.arange(4) < filled, 1 / filled, 0.0))
        np.testing.assert_allclose(got, middle, rtol=1e-6)


def test_without_trimming_it_is_the_mean():
    updates = jnp.asarray(np.random.default_rng(2).normal(size=(6, 3)), jnp.float32)
    got = TrimmedMean(0.0).combine(updates, jnp.full(6, 1 / 6))
    np.testing.assert_allclose(got, Mean().combine(updates, jnp.full(6, 1 / 6)), rtol=1e-5)


@pytest.mark.parametrize("aggregator", [Median(), TrimmedMean(0.2), Krum(f=1, num_selected=2)], ids=str)
@pytest.mark.parametrize("layout", [Layout(), Layout(clients=1, seeds="scan")], ids=str)
def test_a_run_with_a_robust_rule_is_its_text(aggregator, layout):
    trainer = SGD(0.05, batch_size=None, steps=4)
    experiment = Experiment(TASK, local_training=trainer, aggregation=aggregator, cohort_size=5, rounds=6)
    history = simulate(experiment, clients(), seeds=[1, 2], layout=layout)
    for seed, selections in enumerate(history.selections):
        w = np.zeros(2)
        for cohort in selections:
            updates = []
            for i in cohort:
                y = w.copy()
                for _ in range(4):
                    y -= 0.05 * gradient(y, i)
                updates.append(y - w)
            w = w + by_hand(aggregator, np.array(updates))
        np.testing.assert_allclose(weights_of(history, seed), w, rtol=1e-4, atol=1e-5)
    assert len(A) == 6


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"krum: f is -1; it must be a whole number, at least 0"):
        Krum(f=-1)
    with pytest.raises(ValueError, match=r"krum: num_selected is 0"):
        Krum(num_selected=0)
    with pytest.raises(ValueError, match=r"trimmed_mean: beta is 0.5; it must be in \[0, 0.5\)"):
        TrimmedMean(0.5)


@pytest.mark.parametrize(("m", "f", "too_small"), [(4, 1, True), (5, 1, False), (2, 0, True), (3, 0, False)])
def test_krum_warns_of_cohorts_without_its_guarantee(blobs, m, f, too_small):
    """Blanchard et al. 2017, proposition 1: `2 f + 2 < n`."""
    experiment = Experiment(Task(LogisticRegression(3)), aggregation=Krum(f=f), cohort_size=m)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        experiment.check(Federation(blobs, Iid(clients=6)).draw(0))
    said = [str(one.message) for one in found]
    assert (
        said
        == [f"krum: f is {f}, but cohorts have {m} members; its guarantee needs more than 2 f + 2 = {2 * f + 2}"]
        * too_small
    )


def test_updates_whose_distances_overflow_come_before_empty_slots():
    updates = jnp.array([0.0, 0.0, 1e20, -1e20])
    weights = jnp.array([0.0, 0.0, 0.5, 0.5])
    np.testing.assert_array_equal(Krum(f=0, num_selected=1).combine({"w": updates}, weights)["w"], np.float32(1e20))


@pytest.mark.parametrize("aggregator", ROBUST, ids=str)
def test_updates_that_came_back_count_equally_whatever_the_cohorts_weights(aggregator):
    """A member of weight 0 takes part, too; an empty slot does not."""
    cohort = Cohort(
        jnp.arange(4, dtype=jnp.int32), jnp.array([True, True, True, False]), jnp.array([1.0, 3.0, 0.0, 1.0])
    )
    nothing = jnp.zeros(4, jnp.int32)
    plan = Plan(nothing, nothing, jnp.zeros(4))
    weights = aggregator.weights(cohort, nothing, plan)
    np.testing.assert_allclose(weights, [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)
    assert not np.asarray(aggregator.weights(cohort.replace(mask=jnp.zeros(4, bool)), nothing, plan)).any()


@pytest.mark.parametrize(("beta", "m"), [(0.3333, 3), (0.24998, 4), (0.19999, 5), (0.09999, 10)])
def test_a_fraction_below_one_of_m_removes_nothing(beta, m):
    values = np.arange(m, dtype=np.float32) ** 2
    np.testing.assert_allclose(TrimmedMean(beta).combine(jnp.asarray(values), jnp.ones(m)), values.mean(), rtol=1e-6)


@pytest.mark.parametrize("rule", [TrimmedMean(0.0), Median(), Krum(f=0, num_selected=4)], ids=str)
def test_updates_of_16_bits_are_averaged_in_32(rule):
    updates = jnp.array([1, 1.0078125, 1.0078125, 1], jnp.bfloat16)
    assert float(rule.combine(updates, jnp.ones(4))) == 1.00390625
