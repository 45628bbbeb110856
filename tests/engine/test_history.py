"""What a run leaves, read back in every way."""

import dataclasses

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from fedjax_sel import History

NAN = np.nan


@pytest.fixture
def history():
    """Two seeds, four rounds, evaluated in the second and the last; a slot was empty once."""
    return History(
        seeds=(3, 8),
        metrics={
            "accuracy": np.array([[NAN, 0.5, NAN, 0.7], [NAN, 0.6, NAN, 0.9]], np.float32),
            "bytes_down": np.array([[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]]),
            "bytes_up": np.array([[0.5, 0.5, 0.5, 0.5], [5.0, 5.0, 5.0, 5.0]]),
        },
        selections=np.array([[[0, 1], [1, 2], [1, -1], [4, 1]], [[3, 3], [2, 0], [0, 1], [-1, -1]]], np.int32),
        num_clients=6,
    )


@pytest.fixture
def axes():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_the_table_is_long_with_rounds_from_one_and_no_line_where_nothing_was_measured(history):
    table = history.to_pandas()
    assert list(table.columns) == ["round", "seed", "metric", "value"]
    assert len(table) == 2 * 2 + 2 * 4 + 2 * 4
    assert not table.isna().to_numpy().any()
    assert table.index.tolist() == list(range(20))
    lines = {(line.metric, line.seed, line.round): line.value for line in table.itertuples()}
    assert len(lines) == 20
    assert {key: value for key, value in lines.items() if key[0] == "accuracy"} == {
        ("accuracy", 3, 2): np.float32(0.5),
        ("accuracy", 3, 4): np.float32(0.7),
        ("accuracy", 8, 2): np.float32(0.6),
        ("accuracy", 8, 4): np.float32(0.9),
    }
    assert lines["bytes_down", 8, 3] == 30


def test_the_table_pivots_back_into_the_arrays(history):
    table = history.to_pandas().pivot_table(index=["metric", "seed"], columns="round", values="value")
    np.testing.assert_array_equal(table.loc["bytes_down"].to_numpy(), history["bytes_down"])
    np.testing.assert_array_equal(table.loc["accuracy"].to_numpy(np.float32), history["accuracy"])


def test_a_metric_is_an_array_by_seed_and_round_and_an_unknown_one_is_named_with_those_there_are(history):
    assert history["accuracy"].shape == (2, 4)
    with pytest.raises(KeyError, match=r"'accurracy'.*accuracy, bytes_down, bytes_up"):
        history["accurracy"]


def test_a_history_says_which_metrics_it_has_and_equals_itself_alone(history):
    assert "accuracy" in history
    assert "loss" not in history
    assert "bytes" not in history, "no bytes of selection"
    whole = dataclasses.replace(
        history,
        metrics={
            **history.metrics,
            "selection_bytes_down": history["bytes_up"],
            "selection_bytes_up": history["bytes_up"],
        },
    )
    assert "bytes" in whole
    with pytest.raises(TypeError, match="'History' object is not iterable"):
        list(history)
    assert history == history
    assert history in [whole, history]
    assert history != dataclasses.replace(history)


def test_before_the_first_round_the_table_is_empty(history):
    begun = dataclasses.replace(history, metrics={}, selections=history.selections[:, :0])
    table = begun.to_pandas()
    assert list(table.columns) == ["round", "seed", "metric", "value"]
    assert len(table) == 0


def test_a_metric_that_is_true_or_false_is_plotted_as_one_and_zero(history, axes):
    alive = np.array([[True, True, True, True], [True, True, False, False]])
    dataclasses.replace(history, metrics={**history.metrics, "back": alive}).plot("back", ax=axes)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1, 1, 0.5, 0.5])


def test_many_seconds_add_up_though_each_has_the_precision_of_float32(history):
    many = np.full((2, 200_000), 0.1, np.float32)
    long = dataclasses.replace(history, metrics={**history.metrics, "seconds": many})
    np.testing.assert_allclose(long.cumulative("seconds")[:, -1], 200_000 * float(np.float32(0.1)), rtol=1e-12)


def test_cumulative_adds_metrics_up_over_rounds(history):
    np.testing.assert_array_equal(history.cumulative("bytes_down"), [[1, 3, 6, 10], [10, 30, 60, 100]])
    both = [[1.5, 4, 7.5, 12], [15, 40, 75, 120]]
    np.testing.assert_array_equal(history.cumulative("bytes_down", "bytes_up"), both)


def test_counts_are_selections_a_client_and_empty_slots_are_nobody(history):
    np.testing.assert_array_equal(history.counts(), [[1, 4, 1, 0, 1, 0], [2, 1, 1, 2, 0, 0]])


def test_rounds_are_those_that_were_run(history):
    assert history.rounds == 4


def test_a_round_alone_is_a_point_that_is_seen(history, axes):
    once = np.where(np.arange(4) == 1, history["accuracy"], np.nan)
    dataclasses.replace(history, metrics={**history.metrics, "accuracy": once}).plot(ax=axes)
    assert axes.lines[-1].get_marker() == "o"
    history.plot(ax=axes)
    assert axes.lines[-1].get_marker() in ("None", None)


def test_a_plot_is_a_line_of_medians_and_a_band_over_the_evaluated_rounds(history, axes):
    assert history.plot(ax=axes, label="mine") is axes
    axes.set_xlim(0.5, 4.5)
    assert all(float(tick).is_integer() for tick in axes.get_xticks()), "there is no half round"
    (line,), (band,) = axes.lines, axes.collections
    np.testing.assert_array_equal(line.get_xdata(), [2, 4])
    np.testing.assert_allclose(line.get_ydata(), [0.55, 0.8], rtol=1e-6)
    assert line.get_label() == "mine"
    assert isinstance(band, PolyCollection)
    corners = band.get_paths()[0].vertices
    np.testing.assert_allclose(np.unique(corners[:, 1].round(6)), [0.51, 0.59, 0.72, 0.88], rtol=1e-5)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("round", "accuracy")


def test_a_plot_against_cost_runs_along_the_sum_of_what_was_spent(history, axes):
    history.plot("accuracy", x=("bytes_down", "bytes_up"), ax=axes)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [(4 + 40) / 2, (12 + 120) / 2])
    assert axes.get_xlabel() == "bytes down + bytes up"


def test_a_plot_without_axes_makes_its_own(history):
    ax = history.plot("bytes_up", x="bytes_down")
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [5.5, 16.5, 33, 55])
    assert len(ax.collections) == 1
    plt.close(ax.figure)


def test_plotting_what_was_not_measured_names_what_was(history, axes):
    with pytest.raises(KeyError, match="there are: accuracy"):
        history.plot("recall", ax=axes)
    with pytest.raises(KeyError, match="no metric 'metres'"):
        history.plot(x="metres", ax=axes)
