"""Measures of a cell are computed once for each history and experiment, and forgotten with the history."""

import gc

import numpy as np

from fedjax_sel.engine.history import History
from fedjax_sel.papers.measures import fill_diverged, find_best, measure_once, settle_history


class Run:
    """Stands for a history, which holds arrays and has no hash."""

    __hash__ = None

    def __init__(self, accuracy):
        self.accuracy = accuracy


def test_a_history_is_measured_once_for_each_experiment():
    asked = []

    @measure_once
    def measure(name, history):
        asked.append((name, history.accuracy))
        return {name: history.accuracy}

    first, second = Run(0.5), Run(0.7)
    for _ in range(3):
        assert measure("digits", first) == {"digits": 0.5}
        assert measure("digits", second) == {"digits": 0.7}
        assert measure("mnist", first) == {"mnist": 0.5}
    assert asked == [("digits", 0.5), ("digits", 0.7), ("mnist", 0.5)]


def test_what_was_measured_goes_with_its_history_whose_place_another_may_take():
    @measure_once
    def measure(history):
        return history.accuracy

    known = measure.__closure__[0].cell_contents
    for accuracy in range(50):  # memory is reused, so some of these have the same `id`
        assert measure(Run(accuracy)) == accuracy
    gc.collect()
    assert known == {}


def test_a_seed_that_diverged_is_neither_steady_nor_as_good_as_it_was():
    accuracy = np.array([[0.5, 0.7, np.nan, np.nan], [0.5, 0.6, 0.4, np.nan]])
    alive = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    history = History((0, 1), {"accuracy": accuracy, "alive": alive}, np.zeros((2, 4, 1), int), 5, about={"classes": 4})
    assert history.diverged.tolist() == [3, 0]
    settled = settle_history(history)
    np.testing.assert_array_equal(find_best(settled), [0.25, 0.6])
    np.testing.assert_array_equal(fill_diverged(settled, np.array([0.0, 0.1]), 1.0), [1.0, 0.1])
