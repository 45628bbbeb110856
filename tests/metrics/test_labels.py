"""Labels of cohorts against SciPy's relative entropy."""

import numpy as np
from scipy import stats

from fedjax_sel.metrics.labels import cohort_divergence

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 40, (2, 6, 4))


def test_the_divergence_of_a_cohort_is_scipys():
    """Of the pooled examples of distinct clients, from those of all clients of the same seed."""
    selections = np.array([[RNG.permutation(6)[:3] for _ in range(5)] for _ in range(2)])
    got = cohort_divergence(selections, LABELS)
    for run in range(2):
        for t in range(5):
            pooled = np.concatenate([np.repeat(np.arange(4), LABELS[run, i]) for i in selections[run, t]])
            expected = stats.entropy(np.bincount(pooled, minlength=4), LABELS[run].sum(0))
            np.testing.assert_allclose(got[run, t], expected)


def test_empty_slots_and_empty_cohorts():
    got = cohort_divergence(np.array([[[0, -1, 2], [-1, -1, -1]]]), LABELS[:1])
    np.testing.assert_allclose(got[0, 0], stats.entropy(LABELS[0, [0, 2]].sum(0), LABELS[0].sum(0)))
    assert np.isnan(got[0, 1])


def test_members_without_examples_do_not_count():
    labels = np.concatenate([LABELS[:1], np.zeros((1, 1, 4), int)], axis=1)
    got = cohort_divergence(np.array([[[0, 6, 2], [6, -1, -1]]]), labels)
    np.testing.assert_allclose(got[0, 0], stats.entropy(LABELS[0, [0, 2]].sum(0), LABELS[0].sum(0)))
    assert np.isnan(got[0, 1])


def test_a_cohort_like_everybody_has_none_and_a_missing_class_counts_nothing():
    labels = 7 * np.eye(3, dtype=int)[None]
    np.testing.assert_allclose(cohort_divergence(np.array([[[0, 1, 2]]]), labels), 0, atol=1e-12)
    np.testing.assert_allclose(cohort_divergence(np.array([[[0, -1, -1]]]), labels), np.log(3))
