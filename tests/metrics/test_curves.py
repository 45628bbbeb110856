"""Numbers read off a learning curve, against loops and pandas."""

from inspect import unwrap

import numpy as np
import pandas as pd
import pytest

from fedjax_sel.metrics import at_cost, cost_to, coverage, fill_missing, last_mean, mean_over_rounds, rounds_to

NAN = np.nan


@pytest.fixture
def curves():
    """Curves with gaps, some of them at the beginning."""
    rng = np.random.default_rng(3)
    curve = rng.uniform(size=(6, 25))
    curve[rng.uniform(size=curve.shape) < 0.4] = NAN
    curve[0, :4] = NAN
    curve[:, -1] = rng.uniform(size=6)  # a run's last round is always evaluated
    return curve


def first_reached(row, target):
    for t, value in enumerate(row):
        if value >= target:  # never true of a NaN
            return t
    return None


def test_gaps_are_filled_with_the_last_value_before_them(curves):
    np.testing.assert_array_equal(fill_missing(curves), pd.DataFrame(curves).ffill(axis=1).to_numpy())


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda c: last_mean(c, 0), "count is 0; it must be at least 1"),
        (lambda c: rounds_to(c, NAN), "target is nan"),
        (lambda c: unwrap(rounds_to)(c[:, -1], 0.5), r"curve has the shape \(6,\); it must have a row a seed"),
        (lambda c: unwrap(cost_to)(c, c[:1], 0.5), r"cost has the shape \(1, 25\), and the curve \(6, 25\)"),
        (lambda c: unwrap(at_cost)(c, c[:, 1:], c[:, 0]), r"cost has the shape \(6, 24\), and the curve \(6, 25\)"),
        (lambda c: unwrap(at_cost)(c, c, 3.0), r"budget has the shape \(\); it must be one number a seed, of 6"),
        (lambda c: unwrap(mean_over_rounds)(c[0]), r"curve has the shape \(25,\)"),
        (lambda c: coverage(np.array([[[0, 7]]]), 5), "client 7 was selected, but clients is 5"),
    ],
)
def test_what_is_no_curve_is_refused(curves, ask, said):
    with pytest.raises(ValueError, match=said):
        ask(curves)


def test_nothing_is_invented_before_the_first_value():
    np.testing.assert_array_equal(fill_missing(np.array([[NAN, NAN, 0.5, NAN]])), [[NAN, NAN, 0.5, 0.5]])


@pytest.mark.parametrize("target", [0.0, 0.5, 0.9, 0.99])
def test_rounds_to_a_target_count_from_one_and_skip_gaps(curves, target):
    found = [first_reached(row, target) for row in curves]
    np.testing.assert_array_equal(rounds_to(curves, target), [26 if t is None else t + 1 for t in found])


def test_a_target_that_is_met_exactly_is_reached_and_one_never_met_is_censored_after_the_last_round():
    curve = np.array([[0.2, 0.8, 0.9], [0.2, 0.3, 0.79]])
    np.testing.assert_array_equal(rounds_to(curve, 0.8), [2, 4])


def test_cost_to_a_target_is_the_running_cost_at_that_round_and_infinite_where_it_is_never_met(curves):
    cost = np.cumsum(np.random.default_rng(0).uniform(1, 5, curves.shape), axis=1)
    for target in (0.3, 0.95, 2.0):
        found = [first_reached(row, target) for row in curves]
        expected = [np.inf if t is None else cost[i, t] for i, t in enumerate(found)]
        np.testing.assert_array_equal(cost_to(curves, cost, target), expected)


def test_value_at_a_budget_is_the_last_one_that_was_paid_for(curves):
    cost = np.cumsum(np.random.default_rng(1).uniform(1, 5, curves.shape), axis=1)
    budget = np.array([0.5, 20.0, 31.0, 45.0, 1e9, cost[5, 7]])
    expected = []
    for row, running, limit in zip(curves, cost, budget, strict=True):
        value = NAN
        for t in range(row.size):
            if running[t] <= limit and not np.isnan(row[t]):
                value = row[t]
        expected.append(value)
    np.testing.assert_array_equal(at_cost(curves, cost, budget), expected)
    assert np.isnan(expected[0])
    assert expected[4] == curves[4, -1]


def test_a_budget_that_just_suffices_buys_the_round_and_one_below_the_first_round_nothing():
    curve, cost = np.array([[0.5, 0.6]] * 3), np.array([[10.0, 20.0]] * 3)
    np.testing.assert_array_equal(at_cost(curve, cost, np.array([20.0, 19.9, 9.9])), [0.6, 0.5, NAN])


def test_the_mean_over_rounds_is_over_the_evaluated_ones(curves):
    np.testing.assert_allclose(mean_over_rounds(curves), [row[~np.isnan(row)].mean() for row in curves])
    assert mean_over_rounds(np.array([[0.5, NAN, 1.0]]))[0] == 0.75


def test_the_last_mean_counts_evaluated_rounds():
    curve = np.array([[0.9, 0.1, NAN, 0.3, NAN, 0.5], [1.0, NAN, NAN, NAN, NAN, 0.0]])
    np.testing.assert_allclose(last_mean(curve, 3), [0.3, 0.5])
    np.testing.assert_allclose(last_mean(curve, 1), [0.5, 0.0])


def test_an_accuracy_of_exactly_the_target_has_reached_it():
    """As compiled: a sum times the reciprocal of the number of test examples, in float32."""
    for n in (50, 100, 360, 10_000):
        hits = np.arange(1, n + 1)
        accuracy = (hits.astype(np.float32) * np.float32(1 / n))[None]
        for k in range(n // 10, n, max(1, n // 50)):
            assert rounds_to(accuracy, k / n) == k
    assert (np.float32(80) * np.float32(1 / 100)) < 0.8, "which is what this is about"


def test_costs_that_differ_in_rounding_alone_are_within_the_same_budget():
    """Seconds and joules of a round are float32, whose sums depend on the order of a cohort."""
    curve, budget = np.array([[0.5, 0.6, 0.7]]), np.array([30.0])
    for factor in (1 - 5e-8, 1.0, 1 + 5e-8):
        assert at_cost(curve, np.array([[10.0, 20.0, 30.0 * factor]]), budget) == 0.7
    assert at_cost(curve, np.array([[10.0, 20.0, 30.001]]), budget) == 0.6
