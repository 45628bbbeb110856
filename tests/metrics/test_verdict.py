"""From two methods' numbers to a verdict, against scipy's paired t test."""

import math

import numpy as np
import pytest
from scipy import stats

from fedjax_sel.metrics import Difference, difference
from fedjax_sel.metrics.verdict import NOT_REPRODUCED, REPRODUCED, UNDECIDED, adjust_holm


def between(low, high):
    return Difference((low + high) / 2, low, high, 0.5, 5)


@pytest.mark.parametrize("seeds", [2, 3, 20])
def test_the_interval_is_that_of_the_paired_t_test(seeds):
    rng = np.random.default_rng(seeds)
    first, second = rng.normal(0.7, 0.1, seeds), rng.normal(0.6, 0.2, seeds)
    found, oracle = difference(first, second), stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert found.mean == pytest.approx((first - second).mean())
    assert found.share == sum(a >= b for a, b in zip(first, second, strict=True)) / seeds
    assert found.seeds == seeds


def test_the_interval_excludes_zero_where_the_test_rejects_at_five_percent():
    rng = np.random.default_rng(0)
    decisions = set()
    for _ in range(60):
        first, second = rng.normal(0.6, 1, 8), rng.normal(0, 1, 8)
        rejected = stats.ttest_rel(first, second, alternative="greater").pvalue < 0.025
        assert (difference(first, second).larger() == REPRODUCED) == rejected
        decisions.add(rejected)
    assert decisions == {True, False}


def test_pairing_removes_what_the_seeds_have_in_common():
    seed = np.array([0.1, 5.0, -3.0, 9.0])
    assert difference(seed + np.array([0.9, 1.0, 1.1, 1.0]), seed).larger() == REPRODUCED


def test_one_seed_decides_nothing():
    alone = difference(np.array([0.9]), np.array([0.1]))
    assert (alone.low, alone.high, alone.mean) == (-math.inf, math.inf, pytest.approx(0.8))
    assert alone.larger(0.001) == alone.comparable(10.0) == UNDECIDED


def test_differences_without_spread_are_a_point():
    same = difference(np.array([3.0, 4.0, 5.0]), np.array([1.0, 2.0, 3.0]))
    assert (same.low, same.mean, same.high, same.share) == (2, 2, 2, 1)
    equal = difference(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert equal.larger(0.001) == NOT_REPRODUCED
    assert equal.comparable(0.01) == REPRODUCED


def test_a_seed_without_a_number_decides_nothing():
    broken = difference(np.array([1.0, np.nan, 2.0]), np.array([0.0, 0.0, 0.0]))
    assert broken.larger(0.001) == broken.comparable(0.01) == UNDECIDED


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.002, 0.1, REPRODUCED),
        (1e-9, 1e-8, REPRODUCED),  # small, but certain
        (0.0, 0.1, UNDECIDED),
        (-0.1, 0.1, UNDECIDED),
        (-0.1, 0.0011, UNDECIDED),
        (-0.1, 0.001, NOT_REPRODUCED),  # at most a negligible advantage is left
        (-0.1, -0.05, NOT_REPRODUCED),
    ],
)
def test_larger_by_where_the_interval_lies(low, high, verdict):
    assert between(low, high).larger(0.001) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.0, 0.0, REPRODUCED),
        (0.0, 0.5, REPRODUCED),
        (-1e-9, 0.5, UNDECIDED),
        (-0.5, 0.0, UNDECIDED),
        (-0.5, -1e-9, NOT_REPRODUCED),
    ],
)
def test_not_smaller_by_where_the_interval_lies(low, high, verdict):
    assert between(low, high).not_smaller() == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.009, 0.009, REPRODUCED),
        (0.001, 0.002, REPRODUCED),  # a difference for certain, but one within the margin
        (-0.01, 0.0, UNDECIDED),
        (0.0, 0.01, UNDECIDED),
        (-0.5, 0.5, UNDECIDED),
        (0.005, 0.5, UNDECIDED),
        (0.011, 0.5, NOT_REPRODUCED),
        (-0.5, -0.011, NOT_REPRODUCED),
    ],
)
def test_comparable_by_where_the_interval_lies(low, high, verdict):
    assert between(low, high).comparable(0.01) == verdict


def test_whole_numbers_are_compared_as_well_as_fractions():
    assert difference(np.array([5, 7, 9]), np.array([4, 4, 4])).mean == 3


def test_what_is_no_test_counts_nowhere_in_holms_correction():
    np.testing.assert_allclose(adjust_holm([np.nan, 0.01, 0.02, np.nan]), [np.nan, 0.02, 0.02, np.nan])
