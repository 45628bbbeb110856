"""Labels of cohorts against SciPy's relative entropy."""

import numpy as np
from scipy import stats

from fedjax_sel.metrics.labels import cohort_divergence, label_shares

RNG = np.random.default_rng(0)
SHARES = RNG.dirichlet(np.full(4, 0.3), (2, 6))
TARGET = RNG.dirichlet(np.ones(4))


def test_the_divergence_of_a_cohort_is_scipys():
    selections = RNG.integers(0, 6, (2, 5, 3))
    rows = RNG.integers(1, 50, (2, 6))
    plain, pooled = cohort_divergence(selections, SHARES, TARGET), cohort_divergence(selections, SHARES, TARGET, rows)
    for run in range(2):
        for t in range(5):
            members = SHARES[run, selections[run, t]]
            weight = rows[run, selections[run, t]]
            np.testing.assert_allclose(plain[run, t], stats.entropy(members.mean(0), TARGET))
            np.testing.assert_allclose(pooled[run, t], stats.entropy(np.average(members, 0, weight), TARGET))


def test_empty_slots_and_empty_cohorts():
    selections = np.array([[[0, -1, 2], [-1, -1, -1]]])
    got = cohort_divergence(selections, SHARES[:1], TARGET)
    np.testing.assert_allclose(got[0, 0], stats.entropy(SHARES[0, [0, 2]].mean(0), TARGET))
    assert np.isnan(got[0, 1])


def test_members_without_examples_do_not_count():
    shares = np.concatenate([SHARES[:1], np.zeros((1, 1, 4))], axis=1)
    got = cohort_divergence(np.array([[[0, 6, 2], [6, -1, -1]]]), shares, TARGET)
    np.testing.assert_allclose(got[0, 0], stats.entropy(SHARES[0, [0, 2]].mean(0), TARGET))
    assert np.isnan(got[0, 1])


def test_a_cohort_like_everybody_has_none_and_a_missing_class_counts_nothing():
    shares = np.eye(3)[None]
    third = np.full(3, 1 / 3)
    np.testing.assert_allclose(cohort_divergence(np.array([[[0, 1, 2]]]), shares, third), 0, atol=1e-12)
    np.testing.assert_allclose(cohort_divergence(np.array([[[0, 0, 0]]]), shares, third), np.log(3))
    assert np.isinf(cohort_divergence(np.array([[[0, 1, 2]]]), shares, np.array([0.5, 0.5, 0.0])))


def test_shares_are_counted():
    y, client = RNG.integers(0, 4, 200), RNG.integers(-1, 5, 200)
    got = label_shares(y, client, 6, 4)
    for i in range(5):
        np.testing.assert_allclose(got[i], np.bincount(y[client == i], minlength=4) / (client == i).sum())
    assert (got[5] == 0).all()


def test_each_seed_can_have_its_own_target():
    """A cohort of all clients has the labels of all examples, whatever the seed has drawn."""
    rng = np.random.default_rng(0)
    shares, rows = rng.dirichlet(np.ones(4), (3, 5)), rng.integers(1, 30, (3, 5))
    target = np.einsum("rn,rnc->rc", rows, shares) / rows.sum(1)[:, None]
    everybody = np.tile(np.arange(5), (3, 2, 1))
    np.testing.assert_allclose(cohort_divergence(everybody, shares, target, rows), 0, atol=1e-12)
    for run in range(3):
        one = cohort_divergence(everybody[:, :, :2], shares, target, rows)[run]
        np.testing.assert_allclose(one, cohort_divergence(everybody[:, :, :2], shares, target[run], rows)[run])
