"""What every callback of the folder does."""

import inspect
import re
from importlib.util import find_spec

import numpy as np
import pytest

from fedjax_sel import Experiment, Federation, Task, callbacks, config, partition, simulate
from fedjax_sel.models.logistic import LogisticRegression
from fedjax_sel.report import catalogue

EXTRAS = {"mlflow": "mlflow", "trackio": "trackio"}
"""Packages of callbacks that the tests do without."""

NAMES = [name for name in callbacks.available() if find_spec(EXTRAS.get(name, "numpy"))]
METHODS = ("on_train_begin", "on_compiled", "after_central_iteration", "on_train_end")
NAMED_BY_CHANCE = re.compile(r"events\.\d+|\d{8}_\d{6}|[0-9a-f]{8}(?=-\d)")
"""Times and W&B's identifiers, in names of files."""


def files(place):
    """Names of what a run left besides its checkpoints, W&B's own logs, and what was emptied."""
    inside = [p.relative_to(place) for p in place.rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_size]
    return sorted(NAMED_BY_CHANCE.sub("*", str(p)) for p in inside if not {"checkpoints", "logs"} & set(p.parts))


@pytest.mark.parametrize("name", NAMES)
def test_a_callback_constructs_without_arguments_and_documents_itself(name):
    cls = callbacks.load(name)
    assert inspect.getdoc(cls)
    assert any(hasattr(cls(), method) for method in METHODS)
    for method in METHODS:
        assert not hasattr(cls, method) or inspect.getdoc(getattr(cls, method))


@pytest.mark.parametrize("name", NAMES)
def test_a_callback_is_listed_with_a_line(name):
    listed = dict(dict(catalogue.list_choices())["callbacks"])
    assert listed.keys() == set(callbacks.available())
    assert listed[name].endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_the_users_parameters_are_those_without_folder_and_config(name):
    resolved = config.resolve({"data": "iris", "callbacks": name})["callbacks"]
    assert resolved.keys() == {name}
    assert not {"folder", "config", "name"} & resolved[name].keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_callback_changes_no_result_and_leaves_the_same_files_after_a_kill(name, small, tmp_path):
    without = small.run(tmp_path / "without", {})
    whole = small.run(tmp_path / "whole", name)
    twice = small.killed_and_gone_on_with(tmp_path / "twice", name)
    for history in (whole, twice):
        np.testing.assert_array_equal(history["accuracy"], without["accuracy"])
        np.testing.assert_array_equal(history.selections, without.selections)
    assert files(tmp_path / "twice") == files(tmp_path / "whole")
    assert (name != "early_stopping") == bool(files(tmp_path / "whole"))


@pytest.mark.parametrize("name", NAMES)
def test_a_callback_is_told_in_a_run_without_compilation_too(name, small, tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    built = config.build(
        config.resolve(
            {
                "data": "iris",
                "cohort_size": 2,
                "rounds": 2,
                "seeds": 1,
                "partition": {"clients": 3},
                "model": "logistic",
                "local_training": {"batch_size": None},
                "callbacks": name,
            }
        )
    )
    assert built.simulate(callbacks=built.callbacks(place), debug=True).rounds == 2
    assert (name != "early_stopping") == bool(files(place))


def test_a_callback_cannot_change_what_is_recorded(blobs):
    task = Task.on(LogisticRegression(classes=3), blobs)
    one, data = Experiment(task, cohort_size=2, rounds=6), Federation(blobs, partition.Iid(clients=4))
    refused = []

    def spoil(history):
        for values in (history["accuracy"], history.selections, *history.metrics.values()):
            try:
                values[...] = 7
            except ValueError as error:
                refused.append(str(error))

    spoilt, plain = (simulate(one, data, chunk=2, callbacks=given) for given in ([spoil], []))
    assert len(refused) == 3 * (2 + len(plain.metrics))
    assert "read-only" in refused[0]
    for name, values in plain.metrics.items():
        np.testing.assert_array_equal(spoilt[name], values)


def test_an_error_of_a_callback_names_it_and_the_line(blobs):
    task = Task.on(LogisticRegression(classes=3), blobs)
    one, data = Experiment(task, cohort_size=2, rounds=2), Federation(blobs, partition.Iid(clients=4))

    def add(history):
        return np.ones(3) + np.ones(4)

    said = r"callback <function .*: after_central_iteration: operands .* \(test_contract.py, line \d+, in add\)"
    with pytest.raises(ValueError, match=said):
        simulate(one, data, callbacks=[add])


@pytest.mark.parametrize("answer", [3, "done", 0.5, [1]])
def test_only_true_ends_a_run_and_other_answers_are_refused(blobs, answer):
    task = Task.on(LogisticRegression(classes=3), blobs)
    one, data = Experiment(task, cohort_size=2, rounds=4), Federation(blobs, partition.Iid(clients=4))
    refusal = r"after_central_iteration answered .*; it must answer True"
    with pytest.raises(ValueError, match=refusal):
        simulate(one, data, chunk=1, callbacks=[lambda history: answer])
    assert simulate(one, data, chunk=1, callbacks=[lambda history: np.True_]).rounds == 1
    assert simulate(one, data, chunk=1, callbacks=[lambda history: None, lambda history: False]).rounds == 4
