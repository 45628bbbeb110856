"""A stopwatch measures chunks, and goes on counting."""

import numpy as np
import pandas as pd
import pytest

from fedjax_sel.callbacks.stopwatch import Stopwatch
from fedjax_sel.engine.history import History


def at(rounds, seconds=None):
    """A history of so many rounds after so many seconds."""
    about = {} if seconds is None else {"seconds": seconds}
    return History((0,), {}, np.zeros((1, rounds, 1), np.int32), 3, about)


def test_a_line_a_chunk_with_its_own_speed(tmp_path):
    watch = Stopwatch(folder=tmp_path)
    watch.on_train_begin(at(0))
    for rounds, seconds in [(10, 5.0), (20, 7.0), (25, 17.0)]:
        watch.after_central_iteration(at(rounds, seconds))
    table = pd.read_csv(tmp_path / "stopwatch.csv")
    assert table.values.tolist() == [[10, 5, 2], [20, 7, 5], [25, 17, 0.5]]
    assert list(table) == ["round", "seconds", "rounds_per_second"]


def test_lines_from_before_the_checkpoint_are_kept_and_those_after_it_measured_again(tmp_path):
    first = Stopwatch(folder=tmp_path)
    first.on_train_begin(at(0))
    for rounds, seconds in [(10, 5.0), (20, 7.0), (30, 9.0)]:
        first.after_central_iteration(at(rounds, seconds))
    again = Stopwatch(folder=tmp_path)
    again.on_train_begin(at(20, 7.5))
    again.after_central_iteration(at(20, 7.5))  # no new round, no line
    again.after_central_iteration(at(30, 12.5))
    assert pd.read_csv(tmp_path / "stopwatch.csv").values.tolist() == [[10, 5, 2], [20, 7, 5], [30, 12.5, 2]]


def test_a_new_run_does_not_keep_the_lines_of_another(tmp_path):
    for _ in range(2):
        watch = Stopwatch(folder=tmp_path)
        watch.on_train_begin(at(0))
        watch.after_central_iteration(at(4, 2.0))
    assert pd.read_csv(tmp_path / "stopwatch.csv").values.tolist() == [[4, 2, 2]]


def test_seconds_of_a_real_run_rise_through_an_interruption(small, tmp_path):
    history = small.killed_and_gone_on_with(tmp_path / "run", "stopwatch")
    table = pd.read_csv(tmp_path / "run" / "stopwatch.csv")
    assert table["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (table["seconds"].diff().dropna() > 0).all()
    assert table["seconds"].iloc[-1] == pytest.approx(history.about["seconds"])
