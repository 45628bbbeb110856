"""Measures of a cell are computed once for each history and experiment, and forgotten with the history."""

import gc

from fedjax_sel.papers.measures import measure_once


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
