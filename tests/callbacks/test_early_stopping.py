"""Patience is lost in one round, whenever it is asked."""

import numpy as np
import pytest
from typer.testing import CliRunner

from fedjax_sel.callbacks.early_stopping import EarlyStopping
from fedjax_sel.cli import main
from fedjax_sel.config import resolve
from fedjax_sel.engine.history import History
from fedjax_sel.runs import layout
from fedjax_sel.runs.execute import execute

NAN = np.nan


def with_accuracy(*values):
    """A history whose accuracy is this in each round; a row a seed where lists are given."""
    rows = np.atleast_2d(np.asarray(values, float))
    return History(tuple(range(len(rows))), {"accuracy": rows}, np.zeros((*rows.shape, 1), np.int32), 3)


def ends(history, **parameters):
    """The first round after which the run is ended; None: never."""
    stop = EarlyStopping(**parameters)
    for t in range(1, history.rounds + 1):
        some = {name: value[:, :t] for name, value in history.metrics.items()}
        if stop.after_central_iteration(History(history.seeds, some, history.selections[:, :t], 3)):
            return t
    return None


@pytest.mark.parametrize(
    ("values", "parameters", "round"),
    [
        ([1, 2, 3, 4], {"patience": 1}, None),
        ([1, 2, 2, 3], {"patience": 1}, 3),
        ([1, 2, 2, 3], {"patience": 2}, None),
        ([3, 2, 1, 4], {"patience": 2}, 3),
        ([3, 2, 1, 0], {"patience": 2, "mode": "min"}, None),
        ([1, 1.5, 2, 2.5], {"patience": 2, "min_delta": 0.5}, None),  # 2 is the new best after 1
        ([1, 1.25, 1.5, 1.75], {"patience": 2, "min_delta": 0.5}, 3),
        ([1, NAN, NAN, NAN, 1, NAN, 2], {"patience": 2}, None),  # rounds without an evaluation are no evaluations
        ([1, NAN, NAN, NAN, 1, NAN, 0], {"patience": 2}, 7),
        ([NAN, NAN], {"patience": 1}, None),
    ],
)
def test_the_run_ends_after_so_many_evaluations_without_a_new_best(values, parameters, round):
    assert ends(with_accuracy(*values), **parameters) == round


def test_the_mean_over_the_seeds_that_have_a_value_counts():
    assert ends(with_accuracy([1, 2, 3, 4], [4, 2.9, 1.8, 0.7]), patience=1) == 2  # 2.5, 2.45
    assert ends(with_accuracy([1, 2, 3, 4], [1, NAN, NAN, NAN]), patience=1) is None


def test_a_seed_that_diverged_does_not_end_the_run_of_the_others():
    """The mean of the two falls when the better one has ended, but the other improves at every evaluation."""
    history = with_accuracy([0.8, 0.9, NAN, NAN, NAN, NAN], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    alive = np.array([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    history = History(history.seeds, {**history.metrics, "alive": alive}, history.selections, 3)
    assert ends(history, patience=1) is None
    nobody = History(history.seeds, {**history.metrics, "alive": 0 * alive}, history.selections, 3)
    assert not EarlyStopping(patience=1).after_central_iteration(nobody)


def test_less_loss_is_better_unless_it_is_said_otherwise():
    falling = History((0,), {"loss": np.array([[3.0, 2.0, 1.0]])}, np.zeros((1, 3, 1), np.int32), 3)
    assert ends(falling, metric="loss", patience=1) is None
    assert ends(falling, metric="loss", mode="max", patience=1) == 2


def test_a_longer_history_of_a_run_that_was_ended_is_ended_too():
    rng = np.random.default_rng(0)
    for _ in range(50):
        history = with_accuracy(*rng.normal(size=(2, 30)))
        first = ends(history, patience=4)
        assert first is not None
        assert EarlyStopping(patience=4).after_central_iteration(history)


# A gain of accuracy cannot exceed 1: the first evaluation stays the best.
HOPELESS = {"early_stopping": {"patience": 3, "min_delta": 1.0}}


def test_a_run_is_ended_with_the_chunk_in_which_patience_was_lost(small, tmp_path):
    assert small.run(tmp_path / "run", HOPELESS, chunk=3, rounds=9).rounds == 6


def test_a_run_that_was_killed_before_or_at_its_end_is_ended_in_the_same_round(small, tmp_path):
    whole = small.run(tmp_path / "whole", HOPELESS)
    for after in (3, 4):
        twice = small.killed_and_gone_on_with(tmp_path / f"{after}", HOPELESS, after=after)
        assert twice.rounds == whole.rounds == 4
        np.testing.assert_array_equal(twice["accuracy"], whole["accuracy"])
    assert small.run(tmp_path / "whole", HOPELESS).rounds == 4  # its end was not written down; it ends again


def test_a_run_that_was_ended_is_a_finished_one(tmp_path, capsys):
    config = resolve(
        {
            "data": "iris",
            "partition": {"clients": 10},
            "model": "logistic",
            "cohort_size": 4,
            "rounds": 9,
            "seeds": 2,
            "chunk": 2,
            "callbacks": {**HOPELESS, "table": {}},
        }
    )
    place = tmp_path / "run"
    assert execute("small", config, place).rounds == 4
    assert "ended by a callback after 4 of 9 rounds" in capsys.readouterr().err
    assert layout.state(place) == "finished"
    assert layout.read(place)[0].rounds == 4
    assert (place / "table.csv").exists()
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert execute("small", config, place).rounds == 4
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"metric": "acuracy"}, "did you mean 'accuracy'"),
        ({"mode": "mix"}, "unknown mode of early_stopping: 'mix'"),
        ({"patience": 0}, "patience is 0; it must be a whole number, at least 1"),
        ({"min_delta": -0.1}, "min_delta is -0.1; it must be 0 or above"),
        ({"min_delta": NAN}, "min_delta is nan"),
        ({"patience": NAN}, "patience is nan; it must be a whole number"),
        ({"patience": 2.5}, "patience is 2.5; it must be a whole number"),
    ],
)
def test_wrong_parameters_are_refused(given, says):
    with pytest.raises(ValueError, match=says):
        EarlyStopping(**given)


def test_a_metric_that_is_not_measured_is_refused_before_anything_is_made(tmp_path):
    given = ["run", "iris", "data=diabetes", "model=logistic", "partition.clients=5", "m=2", "callbacks=early_stopping"]
    done = CliRunner().invoke(main, [*given, "rounds=2", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    assert "early_stopping: metric is 'accuracy', which the task does not measure; use 'loss'" in " ".join(
        done.stderr.split()
    )
    assert not (tmp_path / "out").exists()
    done = CliRunner().invoke(
        main, [*given, "rounds=2", "callbacks.early_stopping.metric=loss", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
