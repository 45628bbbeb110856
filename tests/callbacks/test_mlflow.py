"""What MLflow keeps is what the history says."""

import shutil
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from fedjax_sel import config
from fedjax_sel.callbacks.mlflow import MLflow

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def kept(place, history):
    """By the name of the run: its parameters, and the values of its metrics by step."""
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    out = {}
    for run in runs:
        read = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        steps = {name: [(one.step, one.value) for one in values] for name, values in read.items()}
        out[run.info.run_name] = run.data.params, {name: sorted(values) for name, values in steps.items()}
    return out


def test_a_run_a_seed_with_every_round_once_also_after_a_kill(small, tmp_path):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    history = small.killed_and_gone_on_with(
        tmp_path / "run", {"mlflow": {"experiment": "mine"}}, seeds=[3, 5], evaluate_every=2
    )
    read = kept(tmp_path / "run", history)
    assert sorted(read) == ["run seed 3", "run seed 5"]
    for i, seed in enumerate((3, 5)):
        given, metrics = read[f"run seed {seed}"]
        assert given["seed"] == str(seed)
        assert given["client_selection.name"] == "uniform"
        assert metrics.pop("round") == [(t, t) for t in range(1, 7)]
        for name, values in metrics.items():
            there = ~np.isnan(history[name][i].astype(float))
            assert values == [(t + 1, float(history[name][i, t])) for t in np.flatnonzero(there)], name
        assert metrics.keys() == {n for n, v in history.metrics.items() if not np.isnan(v[i].astype(float)).all()}


@pytest.mark.parametrize("name", ["mlflow", "trackio"])
def test_without_the_package_the_extra_is_named_before_anything_runs(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"{name}, which is not installed: pip install 'fedjax-sel\[{name}\]'"):
        config.build(config.resolve({"data": "iris", "cohort_size": 2, "callbacks": name}))


class Server:
    """What a tracking server remembers, in MLflow's place: runs by their tags, with their metrics."""

    def __init__(self):
        self.runs, self.tags = {}, {}

    def MlflowClient(self, tracking_uri):
        return self

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="1")

    def search_runs(self, experiments, text):
        found = [run for run, (tag, _) in self.runs.items() if text == f"tags.`fedjax_sel.run` = '{tag}'"]
        return [SimpleNamespace(info=SimpleNamespace(run_id=run)) for run in found]

    def create_run(self, experiment, run_name, tags):
        run = f"run {len(self.runs)}"
        self.runs[run] = tags["fedjax_sel.run"], []
        return SimpleNamespace(info=SimpleNamespace(run_id=run))

    def get_run(self, run):
        last = {name: value for name, value, _, _ in self.runs[run][1]}
        return SimpleNamespace(data=SimpleNamespace(metrics=last))

    def log_batch(self, run, params=(), metrics=()):
        self.runs[run][1].extend([*((name, value, 0, 0) for name, value in params), *metrics])

    def set_tag(self, run, name, value):
        self.tags.setdefault(run, {})[name] = value

    def set_terminated(self, run):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server in MLflow's place."""
    server = Server()
    module, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    module.MlflowClient, module.MlflowException, module.entities = server.MlflowClient, OSError, entities
    entities.Metric, entities.Param = (lambda *parts: parts), (lambda *parts: parts)
    for one in (module, entities):
        one.__spec__ = SimpleNamespace(origin="mlflow.py")
        monkeypatch.setitem(sys.modules, one.__name__, one)
    return server


def test_in_python_every_run_that_begins_is_another_one(small, tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    for rounds in (2, 4):
        small.simulate(rounds, callbacks=[MLflow(uri="http://server")])
    found = [[value for name, value, *_ in given if name == "round"] for _, given in server.runs.values()]
    assert found == [[1, 2], [1, 2, 3, 4]]


def test_the_number_of_rounds_which_may_grow_is_no_parameter(small, tmp_path, server):
    for rounds in (2, 4):
        small.run(tmp_path / "run", {"mlflow": {"uri": "http://server"}}, seeds=1, rounds=rounds)
        assert server.tags == {"run 0": {"rounds": str(rounds)}}
    ((_, given),) = server.runs.values()
    assert "cohort_size" in {one[0] for one in given}
    assert "rounds" not in {one[0] for one in given}


def test_on_a_server_another_run_in_the_same_folder_is_another_one(small, tmp_path, server):
    place = tmp_path / "run"
    asked = {"mlflow": {"uri": "http://server"}}
    small.killed_and_gone_on_with(place, asked, seeds=1)
    assert len(server.runs) == 1
    shutil.rmtree(place)
    small.run(place, asked, seeds=1, rounds=4)
    rounds = [[value for name, value, _, _ in metrics if name == "round"] for _, metrics in server.runs.values()]
    assert rounds == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4]]
